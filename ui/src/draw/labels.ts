/** Labels that do not lie on each other. */

/** A label's box: its centre and size. */
export interface Box { x: number; y: number; width: number; height: number }

const overlap = (one: number, other: number, length: number): number => length - Math.abs(one - other);

/** The boxes, each moved as little as needed along the shorter way, kept within width x height. */
export function pushedApart(boxes: readonly Box[], width: number, height: number, rounds = 80): Box[] {
  const placed = boxes.map((box) => ({ ...box }));
  for (let round = 0; round < rounds; round++) {
    let moved = false;
    for (let i = 0; i < placed.length; i++) {
      for (let j = i + 1; j < placed.length; j++) moved = separated(placed[i]!, placed[j]!) || moved;
    }
    for (const box of placed) {
      box.x = Math.max(box.width / 2, Math.min(width - box.width / 2, box.x));
      box.y = Math.max(box.height / 2, Math.min(height - box.height / 2, box.y));
    }
    if (!moved) break;
  }
  return placed;
}

function separated(one: Box, other: Box): boolean {
  const dx = overlap(one.x, other.x, (one.width + other.width) / 2);
  const dy = overlap(one.y, other.y, (one.height + other.height) / 2);
  if (dx <= 0.01 || dy <= 0.01) return false;
  const axis = dy <= dx ? "y" : "x";
  const half = Math.min(dx, dy) / 2;
  const sign = one[axis] <= other[axis] ? 1 : -1;
  one[axis] -= sign * half;
  other[axis] += sign * half;
  return true;
}
