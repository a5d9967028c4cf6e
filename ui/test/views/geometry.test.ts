import { describe, expect, it } from "vitest";
import { floats } from "../../src/core/tensor";
import { flights, rowsOf, weightedSum, window } from "../../src/views/geometry/geometry";

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

it("keeps distances of what lies in a plane", () => {
  const from = [Float32Array.of(0, 0, 1), Float32Array.of(2, 0, 1)], to = [Float32Array.of(0, 5, 1), Float32Array.of(3, 3, 1)];
  const found = flights(from, to);
  expect(found.explained).toBeCloseTo(1, 6);
  expect(away(found.flights[0]!.from, found.flights[0]!.to)).toBeCloseTo(5, 4);
  expect(away(found.flights[0]!.to, found.flights[1]!.to)).toBeCloseTo(Math.sqrt(13), 4);
});

describe("weightedSum", () => {
  const values = [Float32Array.of(1, 0, 0), Float32Array.of(0, 4, 0), Float32Array.of(3, 3, 0)], weights = [0.5, 0.3, 0.2];
  const y = [1.1, 1.8, 0];
  const sum = weightedSum(weights, values, y);

  it("takes the two longest parts, not the two largest shares", () => {
    expect(sum.keys).toEqual([1, 2]);
    expect(sum.shares).toEqual([0.3, 0.2]);
  });
  it("adds up: parts and rest make the whole", () => {
    const reached = sum.parts.reduce(([a, b], [x, z]) => [a + x, b + z], sum.rest);
    expect(away(reached, sum.total)).toBeLessThan(1e-6);
    expect(Math.hypot(...sum.total)).toBeCloseTo(Math.hypot(...y), 4);
  });
  it("draws a value along its part", () => {
    expect(Math.hypot(...sum.values[0]!)).toBeCloseTo(4, 4);
    expect(sum.values[0]![0] * 0.3).toBeCloseTo(sum.parts[0]![0], 6);
  });
  it("stands a single key", () => {
    const one = weightedSum([1], [Float32Array.of(2, 1)], [2, 1]);
    expect(one.keys).toEqual([0]);
    expect(Math.hypot(...one.rest)).toBeLessThan(1e-6);
  });
});
