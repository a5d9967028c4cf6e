/** "Save figure": what is on the page as plain SVG (text stays text, canvases become images), or as PNG.
 *
 * No foreignObject: drawing programs and papers cannot read it, and a canvas drawn from it may not be read back. */
import { css, parseColour } from "./colours";

const ns = "http://www.w3.org/2000/svg";
const painted = [
  "fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "stroke-linecap", "opacity",
  "font-family", "font-size", "font-style", "font-weight", "text-anchor", "paint-order",
] as const;

/** Pixels: of a caption's letters and lines, and around the picture. */
const LETTER = 12, LINE = 17, MARGIN = 8;

/** The picture of `element` and everything visible in it, with lines of text below. */
export function toSVG(element: Element, caption: readonly string[] = []): string {
  const frame = element.getBoundingClientRect(), { fontFamily, color } = getComputedStyle(element);
  const pen = document.createElement("canvas").getContext("2d")!;
  pen.font = `${LETTER}px ${fontFamily}`;
  const width = Math.ceil(Math.max(frame.width, ...caption.map((line) => pen.measureText(line).width)) + 2 * MARGIN);
  const height = Math.ceil(frame.height + LINE * caption.length + 2 * MARGIN);
  const box = { x: -MARGIN, y: -MARGIN, width, height };
  const svg = node("svg", { xmlns: ns, width, height, viewBox: Object.values(box).join(" ") });
  svg.append(node("rect", { ...box, fill: ground(element) }));
  draw(element, svg, frame);
  caption.forEach((line, i) => {
    const text = node("text", { x: 0, y: frame.height + LINE * (i + 1), fill: colour(color)?.paint ?? "none", "font-family": fontFamily, "font-size": LETTER });
    text.textContent = line;
    svg.append(text);
  });
  return new XMLSerializer().serializeToString(svg);
}

/** The same as pixels, `scale` for each CSS pixel. */
export async function toPNG(element: Element, caption: readonly string[] = [], scale = 2): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(toSVG(element, caption))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(image.naturalWidth * scale);
  canvas.height = Math.ceil(image.naturalHeight * scale);
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => {
    const done = (blob: Blob | null): void => (blob ? resolve(blob) : reject(new Error("too large for a PNG")));
    canvas.toBlob(done, "image/png");
  });
}

function node(name: string, attributes: Record<string, string | number>): SVGElement {
  const made = document.createElementNS(ns, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  return made;
}

/** A colour in a form that every program reads; null if it is invisible. */
function colour(computed: string): { paint: string; alpha: number } | null {
  const alpha = parseFloat(/\/\s*([\d.]+)/.exec(computed)?.[1] ?? /rgba\(.*,\s*([\d.]+)\)/.exec(computed)?.[1] ?? "1");
  return alpha > 0 ? { paint: css(parseColour(computed)), alpha } : null;
}

function ground(element: Element | null): string {
  for (let at = element; at; at = at.parentElement) {
    const found = colour(getComputedStyle(at).backgroundColor);
    if (found) return found.paint;
  }
  return "#ffffff";
}

const unseen = (style: CSSStyleDeclaration): boolean =>
  style.display === "none" || style.visibility === "hidden" || style.opacity === "0" || style.clipPath === "inset(50%)";

function draw(element: Element, into: SVGElement, frame: DOMRect): void {
  const style = getComputedStyle(element);
  if (unseen(style)) return;
  const box = element.getBoundingClientRect();
  if (element instanceof SVGSVGElement) {
    into.append(copied(element, box, frame));
    return;
  }
  shadows(style, box, into, frame);
  background(element, style, box, into, frame);
  if (element instanceof HTMLCanvasElement) {
    const { x, y } = at(box, frame);
    into.append(node("image", { x, y, width: box.width, height: box.height, href: element.toDataURL() }));
  }
  for (const child of element.childNodes) {
    if (child instanceof Element) draw(child, into, frame);
    else if (child instanceof Text) write(child, style, into, frame);
  }
}

const at = (box: DOMRect, frame: DOMRect): { x: number; y: number } => ({ x: box.x - frame.x, y: box.y - frame.y });

/** Shadows without blur: the outlines of chosen rows, columns and cells. */
function shadows(style: CSSStyleDeclaration, box: DOMRect, into: SVGElement, frame: DOMRect): void {
  for (const shadow of style.boxShadow.split(/,(?![^(]*\))/)) {
    const lengths = /(-?[\d.]+)px (-?[\d.]+)px (-?[\d.]+)px (-?[\d.]+)px/.exec(shadow);
    const found = lengths && colour(shadow.replace(lengths[0], "").replace("inset", "").trim());
    if (!found) continue;
    const [dx, dy, blur, spread] = lengths.slice(1).map(Number) as [number, number, number, number];
    if (blur > 0) continue;
    const { x, y } = at(box, frame);
    into.append(node("rect", {
      x: x + dx - spread, y: y + dy - spread, width: Math.max(0, box.width + 2 * spread),
      height: Math.max(0, box.height + 2 * spread), rx: parseFloat(style.borderRadius) || 0, fill: found.paint,
    }));
  }
}

function background(element: Element, style: CSSStyleDeclaration, box: DOMRect, into: SVGElement, frame: DOMRect): void {
  if (box.width === 0 || box.height === 0) return;
  const { x, y } = at(box, frame);
  const fill = colour(style.backgroundColor);
  const outlined = style.boxShadow !== "none";
  if (fill || outlined) {
    into.append(node("rect", {
      x, y, width: box.width, height: box.height, rx: parseFloat(style.borderRadius) || 0,
      fill: fill?.paint ?? ground(element.parentElement), "fill-opacity": fill?.alpha ?? 1,
    }));
  }
  if (style.backgroundImage.startsWith("repeating-linear-gradient")) hatch(style, { x, y, box }, into);
  borders(style, { x, y, box }, into);
}

interface Placed { x: number; y: number; box: DOMRect }

function hatch(style: CSSStyleDeclaration, { x, y, box: { width, height } }: Placed, into: SVGElement): void {
  const found = /(?:oklab|rgba?|color)\([^)]*\)/g;
  const stroke = (style.backgroundImage.match(found) ?? []).map(colour).find((paint) => paint !== null);
  const lines: string[] = [];
  for (let c = 6; c < width + height; c += 7) {
    const [x1, x2] = [Math.max(0, c - height), Math.min(c, width)];
    lines.push(`M${x + x1} ${y + c - x1}L${x + x2} ${y + c - x2}`);
  }
  into.append(node("path", { d: lines.join(""), stroke: stroke?.paint ?? "#cccccc", "stroke-width": 1 }));
}

function borders(style: CSSStyleDeclaration, { x, y, box }: Placed, into: SVGElement): void {
  const sides = ["top", "right", "bottom", "left"].map((side) => {
    const of = (what: string): string => style.getPropertyValue(`border-${side}-${what}`);
    return {
      "stroke-width": of("style") === "none" ? 0 : parseFloat(of("width")),
      stroke: colour(of("color"))?.paint ?? "none",
      "stroke-dasharray": of("style") === "dashed" ? "4 3" : "none",
    };
  });
  const [top] = sides;
  const w = top!["stroke-width"];
  if (w > 0 && sides.every((side) => side["stroke-width"] === w && side.stroke === top!.stroke)) {
    into.append(node("rect", {
      x: x + w / 2, y: y + w / 2, width: Math.max(0, box.width - w), height: Math.max(0, box.height - w),
      rx: parseFloat(style.borderRadius) || 0, fill: "none", ...top!,
    }));
    return;
  }
  const [right, bottom] = [x + box.width, y + box.height];
  const lines = [`M${x} ${y}H${right}`, `M${right} ${y}V${bottom}`, `M${x} ${bottom}H${right}`, `M${x} ${y}V${bottom}`];
  sides.forEach((side, i) => {
    if (side["stroke-width"] > 0) into.append(node("path", { d: lines[i]!, ...side }));
  });
}

/** Every line of a text where the browser put it. */
function write(text: Text, style: CSSStyleDeclaration, into: SVGElement, frame: DOMRect): void {
  const words = text.data.replace(/\s+/g, " ");
  if (words.trim() === "") return;
  const range = document.createRange();
  for (const line of brokenLines(text, range)) {
    range.setStart(text, line.from);
    range.setEnd(text, line.to);
    const box = range.getBoundingClientRect();
    if (box.width === 0) continue;
    into.append(lettered(text.data.slice(line.from, line.to), box, style, frame));
  }
}

function lettered(words: string, box: DOMRect, style: CSSStyleDeclaration, frame: DOMRect): SVGElement {
  const { x, y } = at(box, frame);
  const size = parseFloat(style.fontSize);
  const upright = style.writingMode.startsWith("vertical");
  const made = node("text", {
    fill: colour(style.color)?.paint ?? "none", "font-family": style.fontFamily, "font-size": size,
    "font-style": style.fontStyle, "font-weight": style.fontWeight, "xml:space": "preserve",
    ...(upright
      ? { transform: `translate(${x + box.width / 2 + size * 0.35} ${y + box.height}) rotate(-90)` }
      : { x, y: y + box.height / 2 + size * 0.35, textLength: box.width, lengthAdjust: "spacingAndGlyphs" }),
  });
  made.textContent = words.replace(/\s+/g, " ");
  return made;
}

function brokenLines(text: Text, range: Range): { from: number; to: number }[] {
  const lines: { from: number; to: number; y: number }[] = [];
  for (let i = 0; i < text.length; i++) {
    range.setStart(text, i);
    range.setEnd(text, i + 1);
    const box = range.getClientRects()[0];
    if (!box || box.width + box.height === 0) continue;
    const last = lines.at(-1);
    if (last && Math.abs(last.y - box.y) < box.height / 2) last.to = i + 1;
    else lines.push({ from: i, to: i + 1, y: box.y });
    if (getComputedStyle(text.parentElement!).writingMode.startsWith("vertical")) return [{ from: 0, to: text.length }];
  }
  return lines;
}

/** An SVG as it is, with the styles that its classes gave it. */
function copied(source: SVGSVGElement, box: DOMRect, frame: DOMRect): SVGElement {
  const copy = source.cloneNode(true) as SVGSVGElement;
  const [from, to] = [[source, ...source.querySelectorAll("*")], [copy, ...copy.querySelectorAll("*")]];
  from.forEach((element, i) => {
    const [style, target] = [getComputedStyle(element), to[i]!];
    for (const name of painted) {
      const value = style.getPropertyValue(name);
      const isColour = (name === "fill" || name === "stroke") && value !== "none" && !value.startsWith("url");
      const found = isColour ? colour(value) : null;
      target.setAttribute(name, isColour ? (found?.paint ?? "none") : value);
      if (name === "fill" && found && found.alpha < 1) target.setAttribute("fill-opacity", String(found.alpha));
    }
    target.removeAttribute("class");
    target.removeAttribute("style");
  });
  const { x, y } = at(box, frame);
  const placed = { x, y, width: box.width, height: box.height };
  for (const [key, value] of Object.entries(placed)) copy.setAttribute(key, String(value));
  copy.setAttribute("overflow", "visible");
  return copy;
}
