import { expect, test } from "vitest";
import { reachOf, shownOf, stairs, withOthers } from "../../src/draw/columns";

test("of many terms the largest are drawn in their order, with those that are asked for", () => {
  expect(shownOf([1, -9, 2, 8, -Infinity], 5)).toEqual([0, 1, 2, 3, 4]);
  expect(shownOf([1, -9, 2, 8, 0.5, -Infinity], 3, [4, -1, 99])).toEqual([1, 3, 4]);
});

test("what is not drawn is one more term, so that the sum stays", () => {
  const terms = [1, -9, 2, 8, 0.5];
  expect(withOthers(terms, [1, 3])).toEqual([-9, 8, 3.5]);
  expect(withOthers(terms, [0, 1, 2, 3, 4])).toEqual(terms);
});

test("each stair begins where the one before ends; the last ends at the sum", () => {
  const steps = stairs([2, -5, 4]);
  expect(steps).toEqual([{ from: 0, to: 2 }, { from: 2, to: -3 }, { from: -3, to: 1 }]);
  expect(reachOf(steps)).toEqual({ low: -3, high: 2 });
  expect(reachOf(stairs([3]))).toEqual({ low: 0, high: 3 });
});
