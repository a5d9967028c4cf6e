import { expect, test } from "vitest";
import { fixed, kl, num, percent, share, short, tokenText } from "../../src/draw/format";

test.each([
  [-0.53, 2, "−0.53"], [0.478, 3, "0.478"], [0, 2, "0.00"], [-0, 2, "0.00"], [0.000043, 2, "0.000043"],
  [-0.000043, 2, "−0.000043"], [-0.004, 1, "−0.004"], [0.0008, 2, "0.0008"], [0.00000061, 2, "0.000001"], [-0.0000004, 2, "0.00"], [0.45, 0, "0.45"], [12000, 0, "12000"], [2.5e7, 2, "2.5e7"], [NaN, 2, "–"],
  [-Infinity, 2, "−∞"], [Infinity, 2, "∞"],
])("num(%f, %i) is %s", (x, digits, text) => expect(num(x, digits)).toBe(text));

test("fixed keeps its digits and never says −0.00", () => {
  expect(fixed(-0.0033)).toBe("0.00");
  expect(fixed(-0.005001)).toBe("−0.01");
  expect(fixed(-1.26, 1)).toBe("−1.3");
  expect(fixed(-Infinity)).toBe("−∞");
});

test("shares", () => {
  expect([0.48, 1, 0, 0.999, -0.2].map((x) => share(x))).toEqual([".48", "1.00", ".00", "1.00", "−.20"]);
});

test("percent", () => {
  expect([0.81, 0.004, 0.00001, 0, 1, 0.996, 0.99999, 1.000001].map(percent)).toEqual(
    ["81 %", "0.4 %", "< 0.1 %", "0 %", "100 %", "99.6 %", "> 99.9 %", "100 %"].map((text) => text.replaceAll(" ", "\u00a0")));
  expect([-0.03, 7, 1.2].map(percent), "no shares of one").toEqual(["−0.03", "7.00", "1.20"]);
});

test("kl is never negative", () => {
  expect([0.324, 0.0123, -1e-9, 0].map(kl)).toEqual(["0.32", "0.012", "0.000", "0.000"]);
});

test("tokens", () => {
  expect([" ", "\n\t", "", " the", ".\n", "\u0002"].map(tokenText)).toEqual(["␣", "↵⇥", "∅", " the", ".↵", "<0x2>"]);
  expect(short("unbelievably", 8)).toBe("unbelie…");
  expect(short("👩‍🔬🚀🚀🚀", 20)).toBe("👩‍🔬🚀🚀🚀");
});
