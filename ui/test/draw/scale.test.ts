import { expect, test } from "vitest";
import { extent, linearScale, tick, ticks } from "../../src/draw/scale";

test("ticks are round and within", () => {
  expect(ticks(0, 20000, 4)).toEqual([0, 5000, 10000, 15000, 20000]);
  expect(ticks(-0.3, 0.3, 3)).toEqual([-0.2, 0, 0.2]);
  expect(ticks(5, 5, 4)).toEqual([5]);
});

test("scales meet their ends", () => {
  const x = linearScale([10, 20], [0, 100]);
  expect([x(10), x(15), x(20)]).toEqual([0, 50, 100]);
});

test("extent ignores what is not finite", () => {
  expect(extent([3, NaN, -1, Infinity])).toEqual([-1, 3]);
  expect(extent([])).toEqual([0, 1]);
});

test("tick", () => expect([12000, 0.5, -3, 2.5e6, 1200].map(tick)).toEqual(["12k", "0.5", "−3", "2.5M", "1200"]));
