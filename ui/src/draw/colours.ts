/** Colours of cells, for canvases: the variables of theme.css as they are here and now, mixed in OKLab as CSS does. */

/** Red, green, blue: 0..255. */
export type Rgb = readonly [number, number, number];
type Lab = readonly [number, number, number];

export type Hue = "Q" | "K" | "V" | "Y" | "seq";

const names = ["bg", "pan", "line", "ink", "ink2", "ink3", "Q", "K", "V", "Y", "B", "acc", "neg", "sel", "seq0", "seq1"] as const;
export type ColourName = (typeof names)[number];

/** How much of a colour the strongest cell holds: numbers on it stay readable (theme.test.ts). */
export const strongest = { positive: 0.88, negative: 0.6 } as const;
const steps = 256;

const clamp = (x: number, low: number, high: number): number => Math.min(high, Math.max(low, x));

function linear(channel: number): number {
  const c = channel / 255;
  return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
}

function encoded(c: number): number {
  return 255 * clamp(c <= 0.0031308 ? 12.92 * c : 1.055 * c ** (1 / 2.4) - 0.055, 0, 1);
}

/** sRGB to OKLab (Ottosson 2020). */
export function toOklab([r, g, b]: Rgb): Lab {
  const [x, y, z] = [linear(r), linear(g), linear(b)];
  const l = Math.cbrt(0.4122214708 * x + 0.5363325363 * y + 0.0514459929 * z);
  const m = Math.cbrt(0.2119034982 * x + 0.6806995451 * y + 0.1073969566 * z);
  const s = Math.cbrt(0.0883024619 * x + 0.2817188376 * y + 0.6299787005 * z);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

export function fromOklab([light, a, b]: Lab): Rgb {
  const l = (light + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (light - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (light - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    encoded(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
    encoded(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
    encoded(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s),
  ];
}

/** `share` of `to`, the rest of `from`: CSS color-mix(in oklab, to share, from). */
export function mix(from: Rgb, to: Rgb, share: number): Rgb {
  const [p, q] = [toOklab(from), toOklab(to)];
  return fromOklab([p[0] + (q[0] - p[0]) * share, p[1] + (q[1] - p[1]) * share, p[2] + (q[2] - p[2]) * share]);
}

/** Relative luminance of WCAG 2. */
export function luminance([r, g, b]: Rgb): number {
  return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
}

/** Contrast ratio of WCAG 2: 1..21. */
export function contrast(one: Rgb, other: Rgb): number {
  const [p, q] = [luminance(one), luminance(other)];
  return (Math.max(p, q) + 0.05) / (Math.min(p, q) + 0.05);
}

/** A colour as a browser computes it: #hex, rgb(), color(srgb …), oklab() or oklch(). Transparency is ignored. */
export function parseColour(css: string): Rgb {
  const hex = /^#([0-9a-f]{6})$/i.exec(css.trim());
  if (hex) return [0, 2, 4].map((at) => parseInt(hex[1]!.slice(at, at + 2), 16)) as unknown as Rgb;
  const [x = 0, y = 0, z = 0] = (css.match(/-?\d*\.?\d+(e-?\d+)?%?/gi) ?? []).map(parseFloat);
  if (css.startsWith("oklch")) return fromOklab([x, y * Math.cos((z * Math.PI) / 180), y * Math.sin((z * Math.PI) / 180)]);
  if (css.startsWith("oklab")) return fromOklab([x, y, z]);
  return css.startsWith("color(") ? [x * 255, y * 255, z * 255] : [x, y, z];
}

export const css = ([r, g, b]: Rgb): string => `rgb(${Math.round(r)}, ${Math.round(g)}, ${Math.round(b)})`;

/** A pixel of an ImageData seen as 32-bit words. */
export const packed = ([r, g, b]: Rgb): number =>
  ((255 << 24) | (Math.round(b) << 16) | (Math.round(g) << 8) | Math.round(r)) >>> 0;

function ramp(from: Rgb, to: Rgb): Rgb[] {
  return Array.from({ length: steps }, (_, i) => mix(from, to, i / (steps - 1)));
}

const index = (v: number): number => Math.round(clamp(v, 0, 1) * (steps - 1));

/** The scales of one theme. */
export class Palette {
  readonly #ramps = new Map<string, Rgb[]>();

  constructor(readonly colours: Readonly<Record<ColourName, Rgb>>) {}

  #ramp(to: ColourName, most: number): Rgb[] {
    let found = this.#ramps.get(to);
    if (!found) {
      const { seq0 } = this.colours;
      found = ramp(seq0, mix(seq0, this.colours[to], most));
      this.#ramps.set(to, found);
    }
    return found;
  }

  /** A share of the largest value: v 0..1. */
  sequential(v: number, hue: Hue = "seq"): Rgb {
    const table = hue === "seq" ? this.#ramp("seq1", 1) : this.#ramp(hue, strongest.positive);
    return table[index(v)]!;
  }

  /** v -1..1: the hue where positive, slate where negative (cells of it are also hatched). */
  signed(v: number, hue: Hue = "seq"): Rgb {
    return v < 0 ? this.#ramp("neg", strongest.negative)[index(-v)]! : this.sequential(v, hue);
  }
}

const palettes = new Map<string, Palette>();
/** Styles read in this frame: a hundred thumbnails ask for them at once. */
const read = new WeakMap<Element, Palette>();

/** The palette where `element` stands; one object for one theme. */
export function paletteOf(element: Element): Palette {
  const root = element.closest(".clearhead") ?? element;
  const known = read.get(root);
  if (known) return known;
  const palette = paletteNow(root);
  read.set(root, palette);
  requestAnimationFrame(() => read.delete(root));
  return palette;
}

function paletteNow(root: Element): Palette {
  const probe = document.createElement("span");
  probe.hidden = true;
  root.append(probe);
  const style = getComputedStyle(probe);
  const found = names.map((name) => {
    probe.style.color = `var(--${name})`;
    return style.color;
  });
  probe.remove();
  const key = found.join(" ");
  let palette = palettes.get(key);
  if (!palette) {
    const colours = Object.fromEntries(names.map((name, i) => [name, parseColour(found[i]!)]));
    palette = new Palette(colours as Record<ColourName, Rgb>);
    palettes.set(key, palette);
  }
  return palette;
}

/** Calls `changed` whenever the colours around `element` may have changed; returns how to stop. */
export function onTheme(element: Element, changed: () => void): () => void {
  const queries = ["(prefers-color-scheme: dark)", "(forced-colors: active)"].map((query) => matchMedia(query));
  const root = element.closest(".clearhead");
  const observer = new MutationObserver(() => {
    if (root) read.delete(root);
    changed();
  });
  if (root) observer.observe(root, { attributes: true, attributeFilter: ["data-theme"] });
  for (const query of queries) query.addEventListener("change", changed);
  return () => {
    observer.disconnect();
    for (const query of queries) query.removeEventListener("change", changed);
  };
}
