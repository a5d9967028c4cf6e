import { expect, it } from "vitest";
import { floats } from "../../src/core/tensor";
import { approach, rowsOf, window } from "../../src/views/geometry/geometry";

it("keeps a window within the tokens", () => {
  expect(window(3, 2, 9)).toEqual([0, 1, 2]);
  expect(window(10, 0, 4)).toEqual([0, 1, 2, 3]);
  expect(window(10, 9, 4)).toEqual([6, 7, 8, 9]);
});

it("takes rows, of length one where asked", () => {
  const states = floats([2, 2], Float32Array.of(3, 4, 0, 0));
  expect(rowsOf(states, [0, 1], false).map((row) => [...row])).toEqual([[3, 4], [0, 0]]);
  expect(rowsOf(states, [0, 1], true).map((row) => row.reduce((sum, x) => sum + x * x, 0))).toEqual([expect.closeTo(1, 6), 0]);
});

it("tells how far apart two vectors are, before and after", () => {
  const from = [Float32Array.of(0, 0), Float32Array.of(3, 4)], to = [Float32Array.of(1, 0), Float32Array.of(1, 2)];
  expect(approach(from, to, 0, 1)).toEqual({ one: 0, other: 1, was: 5, is: 2 });
});
