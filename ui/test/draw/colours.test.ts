import { describe, expect, test } from "vitest";
import {
  css, fromOklab, luminance, mix, packed, parseColour, toOklab, type Hue, type Rgb,
} from "../../src/draw/colours";
import { themes } from "./theme";

const hues: Hue[] = ["seq", "Q", "K", "V", "Y"];
const lightness = (rgb: Rgb): number => toOklab(rgb)[0];

/** Viénot, Brettel, Mollon 1999: what a dichromat sees, on linear RGB. */
const simulations: Record<string, number[][]> = {
  deuteranopia: [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
  protanopia: [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
  greyscale: [[0.2126, 0.7152, 0.0722], [0.2126, 0.7152, 0.0722], [0.2126, 0.7152, 0.0722]],
};
const linear = (c: number): number => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
const encoded = (c: number): number => {
  const held = Math.min(1, Math.max(0, c));
  return 255 * (held <= 0.0031308 ? 12.92 * held : 1.055 * held ** (1 / 2.4) - 0.055);
};

function seen(rgb: Rgb, matrix: number[][]): Rgb {
  const channels = rgb.map((c) => linear(c / 255));
  return matrix.map((line) => encoded(line.reduce((sum, x, i) => sum + x * channels[i]!, 0))) as unknown as Rgb;
}

function distance(one: Rgb, other: Rgb): number {
  const [p, q] = [toOklab(one), toOklab(other)];
  return Math.hypot(p[0] - q[0], p[1] - q[1], p[2] - q[2]);
}

/** Two colours side by side differ for a reader from about 0.02 in OKLab on. */
const noticeable = 0.03;

test("OKLab there and back", () => {
  for (const rgb of [[0, 0, 0], [255, 255, 255], [38, 104, 178], [12, 250, 3]] as Rgb[]) {
    fromOklab(toOklab(rgb)).forEach((channel, i) => expect(channel).toBeCloseTo(rgb[i]!, 1));
  }
  expect(toOklab([255, 0, 0])[0]).toBeCloseTo(0.628, 3);
});

test("mix is CSS's color-mix in oklab", () => {
  expect(mix([255, 255, 255], [0, 0, 0], 0.5).map(Math.round)).toEqual([99, 99, 99]);
});

test("colours as browsers write them", () => {
  expect(parseColour("#2668b2")).toEqual([38, 104, 178]);
  expect(parseColour("rgb(38, 104, 178)")).toEqual([38, 104, 178]);
  expect(parseColour("rgba(38, 104, 178, 0.5)")).toEqual([38, 104, 178]);
  expect(parseColour("color(srgb 0 0.5 1)")).toEqual([0, 127.5, 255]);
  expect(css(parseColour("oklab(0.627955 0.224863 0.125846)"))).toBe("rgb(255, 0, 0)");
  expect(packed([1, 2, 3])).toBe(0xff030201);
});

describe.each(themes)("$name", ({ name, palette }) => {
  const steps = (hue: Hue, sign = 1): Rgb[] =>
    Array.from({ length: 8 }, (_, i) => (sign < 0 ? palette.signed(-i / 7, hue) : palette.sequential(i / 7, hue)));

  test.each(hues)("%s: lightness goes one way", (hue) => {
    const table = Array.from({ length: 256 }, (_, i) => lightness(palette.sequential(i / 255, hue)));
    for (let i = 1; i < 256; i++) expect(Math.sign(table[i]! - table[i - 1]!)).toBe(name === "light" ? -1 : 1);
  });

  test.each(Object.entries(simulations))("%s: eight steps stay apart", (_, matrix) => {
    for (const hue of hues) {
      const shown = steps(hue).map((rgb) => seen(rgb, matrix));
      for (let i = 1; i < 8; i++) {
        expect(distance(shown[i]!, shown[i - 1]!), `${hue}, step ${i}`).toBeGreaterThan(noticeable);
      }
    }
  });

  test("negative values darken (or lighten) steadily too", () => {
    const shown = steps("Q", -1).map(lightness);
    for (let i = 1; i < 8; i++) expect(Math.abs(shown[i]! - shown[i - 1]!)).toBeGreaterThan(0.02);
  });

  test("values beyond the scale are held at its ends", () => {
    expect(palette.sequential(7)).toEqual(palette.sequential(1));
    expect(palette.sequential(-7)).toEqual(palette.sequential(0));
    expect(palette.signed(-7)).toEqual(palette.signed(-1));
  });

  test("shares use the whole range", () => {
    const span = luminance(palette.sequential(0)) - luminance(palette.sequential(1));
    expect(Math.abs(span)).toBeGreaterThan(0.25);
  });
});
