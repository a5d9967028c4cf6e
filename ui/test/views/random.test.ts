import { expect, it } from "vitest";
import { deviation, products, uniform } from "../../src/views/scale/random";

it("is the same for the same seed, and another for another", () => {
  expect([...products(3, 5, 7)]).toEqual([...products(3, 5, 7)]);
  expect(products(3, 1, 8)[0]).not.toBe(products(3, 1, 7)[0]);
});

it("draws evenly from [0, 1)", () => {
  const next = uniform(1), counts = new Array<number>(10).fill(0);
  for (let i = 0; i < 20_000; i++) counts[Math.floor(next() * 10)]! += 1;
  // Of chi-squared with 9 degrees of freedom 99.7 % are below 25.
  const chi = counts.reduce((sum, n) => sum + (n - 2000) ** 2 / 2000, 0);
  expect(chi).toBeLessThan(25);
});

it.each([3, 100, 1000])("spreads products of width %i by its square root", (width) => {
  const ratio = deviation(products(width, 2000, width)) / Math.sqrt(width);
  expect(ratio).toBeGreaterThan(0.92);
  expect(ratio).toBeLessThan(1.08);
});
