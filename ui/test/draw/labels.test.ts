import { expect, test } from "vitest";
import { pushedApart, type Box } from "../../src/draw/labels";

const overlaps = (one: Box, other: Box): boolean =>
  Math.abs(one.x - other.x) < (one.width + other.width) / 2 - 0.1
  && Math.abs(one.y - other.y) < (one.height + other.height) / 2 - 0.1;

test("labels at one place come apart and stay in the picture", () => {
  const boxes = Array.from({ length: 6 }, (_, i) => ({ x: 150 + i, y: 90 - i, width: 40, height: 16 }));
  const placed = pushedApart(boxes, 304, 190);
  for (const [i, one] of placed.entries()) {
    for (const other of placed.slice(i + 1)) expect(overlaps(one, other)).toBe(false);
    expect(one.x - one.width / 2).toBeGreaterThanOrEqual(0);
    expect(one.y + one.height / 2).toBeLessThanOrEqual(190);
  }
});

test("labels that do not touch stay where they are", () => {
  const boxes = [{ x: 30, y: 20, width: 40, height: 16 }, { x: 200, y: 20, width: 40, height: 16 }];
  expect(pushedApart(boxes, 304, 190)).toEqual(boxes);
});
