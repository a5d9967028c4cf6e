import { expect, it } from "vitest";
import { floats } from "../../src/core/tensor";
import { approaches, flights, rowsOf, window } from "../../src/views/geometry/geometry";

const away = ([a, b]: [number, number], [x, y]: [number, number]): number => Math.hypot(a - x, b - y);

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

it("keeps how far apart a pair is, before and after, whatever the others do", () => {
  const from = [Float32Array.of(0, 0, 1), Float32Array.of(2, 0, 4), Float32Array.of(9, 9, 9)], to = [Float32Array.of(0, 5, 1), Float32Array.of(3, 3, 1), Float32Array.of(7, 0, 7)];
  const [one, other] = flights(from, to, 0, 1);
  expect(away(one!.from, other!.from)).toBeCloseTo(Math.sqrt(13), 4);
  expect(away(one!.to, other!.to)).toBeCloseTo(Math.sqrt(13), 4);
  expect(flights(from, to)[0]!.from.every(Number.isFinite)).toBe(true);
});

it("tells how far apart the vectors of each pair are, before and after", () => {
  const from = [Float32Array.of(0, 0), Float32Array.of(3, 4), Float32Array.of(9, 9)], to = [Float32Array.of(1, 0), Float32Array.of(1, 2), Float32Array.of(9, 9)];
  expect(approaches(from, to, [0, 1])).toEqual([{ one: 0, other: 1, was: 5, is: 2 }]);
  expect(approaches(from, to, [0, 1, 2])).toHaveLength(3);
});
