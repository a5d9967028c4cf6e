import { expect, test } from "vitest";
import { around, follow, gridOf, headOf, pooled } from "../../src/draw/grid";

test("8-bit pixels of a head are shares of their row's largest", () => {
  const grid = headOf({ pixels: Uint8Array.of(255, 51, 0, 255), max: Float32Array.of(0.5, 0.25), rows: 2, cols: 2 });
  expect(grid.at(0, 0)).toBeCloseTo(0.5);
  expect(grid.at(0, 1)).toBeCloseTo(0.1);
  expect(grid.at(1, 1)).toBeCloseTo(0.25);
  expect(grid.top).toBeCloseTo(0.5);
});

test("a large head is small, and a single bright cell survives", () => {
  const n = 100, pixels = new Uint8Array(n * n), max = new Float32Array(n).fill(0.1);
  pixels[57 * n + 93] = 255;
  max[57] = 0.8;
  const small = headOf({ pixels, max, rows: n, cols: n }), at = (i: number): number => Math.floor((i * 32) / n);
  const all = Array.from({ length: 32 }, (_, r) => Array.from({ length: 32 }, (_, c) => small.at(r, c)));
  expect([small.rows, small.cols]).toEqual([32, 32]);
  expect(all[at(57)]![at(93)]).toBeCloseTo(0.8, 6);
  expect(all.flat().filter((x) => x > 0)).toHaveLength(1);
});

test("closed cells and NaN are no numbers and do not count", () => {
  const grid = gridOf({ values: Float32Array.of(1, 9, NaN, -2), rows: 2, cols: 2, closed: (r, c) => c > r });
  expect([grid.at(0, 1), grid.at(1, 0)]).toEqual([NaN, NaN]);
  expect(grid.top).toBe(2);
});

test("pooling keeps a single bright cell, and the sign of the largest", () => {
  const values = new Float32Array(1000 * 1000);
  values[617 * 1000 + 34] = 1;
  values[3 * 1000 + 999] = -2;
  const grid = gridOf({ values, rows: 1000, cols: 1000 });
  const small = pooled(grid, 128, 128);
  expect(small.rows).toBe(128);
  expect(small.at(Math.floor(617 * 0.128), Math.floor(34 * 0.128))).toBe(1);
  expect(small.at(0, 127)).toBe(-2);
  expect(small.top).toBe(2);
});

test("a pool is closed only where all of it is", () => {
  const grid = gridOf({ values: Float32Array.of(NaN, 3, NaN, NaN), rows: 1, cols: 4 });
  const small = pooled(grid, 1, 2);
  expect([small.at(0, 0), small.at(0, 1)]).toEqual([3, NaN]);
});

test("pooling to more cells than there are changes nothing", () => {
  const grid = gridOf({ values: Float32Array.of(1, 2, 3, 4, 5, 6), rows: 2, cols: 3 });
  const small = pooled(grid, 32, 32);
  expect([small.rows, small.cols, small.at(1, 2)]).toEqual([2, 3, 6]);
});

test("a window stays within and moves only when it must", () => {
  expect([around(0, 32, 100), around(50, 32, 100), around(99, 32, 100), around(3, 32, 8)]).toEqual([0, 34, 68, 0]);
  expect([follow(10, 41, 32, 100), follow(10, 42, 32, 100), follow(10, 9, 32, 100)]).toEqual([10, 26, 0]);
});

test("a head's colours follow its own weights, not the row that has no choice", () => {
  const pixels = Uint8Array.of(255, 0, 0, 255, 204, 0, 255, 255, 255), max = Float32Array.of(1, 0.55, 0.33);
  expect(headOf({ pixels, max, rows: 3, cols: 3 }).top).toBeCloseTo(0.55);
  expect(headOf({ pixels: Uint8Array.of(255), max: Float32Array.of(1), rows: 1, cols: 1 }).top).toBe(1);
});
