import { describe, expect, test } from "vitest";
import { contrast, mix, type Rgb } from "../../src/draw/colours";
import { css, flip, themes } from "./theme";

const text = ["ink", "ink2", "ink3", "Q", "K", "V", "Y", "B", "acc"];
const grounds = ["bg", "pan", "line2"];
const marks = ["Q", "K", "V", "Y", "B", "acc", "neg", "sel", "edge"];
const values = Array.from({ length: 1001 }, (_, i) => i / 1000);
const [black, white]: Rgb[] = [[0, 0, 0], [255, 255, 255]];

describe.each(themes)("$name", ({ name, colours }) => {
  const of = (variable: string): Rgb => colours[variable] ?? expect.fail(`--${variable} is not light-dark(#…, #…)`);

  test.each(text)("--%s is readable on every ground", (variable) => {
    for (const ground of grounds) expect(contrast(of(variable), of(ground)), ground).toBeGreaterThanOrEqual(4.5);
  });

  test.each(marks)("--%s is seen on every ground", (variable) => {
    for (const ground of grounds) expect(contrast(of(variable), of(ground)), ground).toBeGreaterThanOrEqual(3);
  });

  test("the number in a cell of shares, at any share", () => {
    const [far, near] = name === "light" ? [black!, white!] : [white!, black!];
    for (const v of values) {
      const cell = mix(of("seq0"), of("seq1"), v);
      const number = v > flip ? near : mix(of("ink"), far, Math.min(1, v / flip));
      expect(contrast(number, cell), `v = ${v}`).toBeGreaterThanOrEqual(4.5);
    }
  });

  test.each(["seq1", "Q", "K", "V", "Y", "neg"])("ink on a signed cell of --%s", (variable) => {
    const most = variable === "neg" ? 0.6 : 0.46;
    for (const v of values) {
      expect(contrast(of("ink"), mix(of("seq0"), of(variable), v * most)), `v = ${v}`).toBeGreaterThanOrEqual(4.5);
    }
  });

  test("thin lines and pale bars are seen", () => {
    expect(contrast(mix(of("pan"), of("V"), 0.72), of("pan"))).toBeGreaterThanOrEqual(3);
    expect(contrast(mix(of("pan"), of("acc"), 0.72), of("pan"))).toBeGreaterThanOrEqual(3);
    expect(contrast(mix(of("pan"), of("ink"), 0.62), of("pan"))).toBeGreaterThanOrEqual(3);
  });
});

test("every selector lives under .clearhead, for the page is mounted in notebooks too", () => {
  const bare = css.replace(/\/\*[\s\S]*?\*\//g, "").replace(/@media[^{]+\{/g, "");
  const selectors = [...bare.matchAll(/(?:^|[}])\s*([^{}@]+)\{/g)].map((rule) => rule[1]!.trim());
  expect(selectors.length).toBeGreaterThan(15);
  for (const selector of selectors) {
    for (const part of selector.split(/,(?![^(]*\))/)) expect(part.trim()).toMatch(/^\.clearhead\b/);
  }
});

test("reduced motion and forced colours are heeded", () => {
  expect(css).toContain("prefers-reduced-motion: reduce");
  expect(css).toContain("forced-colors: active");
});
