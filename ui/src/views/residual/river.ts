/** The residual stream of one token as a river: its width where each part flows in. */

import { cosine, length } from "../../core/vectors";
import type { Join } from "../norm/joins";

/** One addition, by lengths. */
export interface Measured {
  join: Join;
  stream: number;
  adds: number;
  /** Of what is added to the stream. */
  cosine: number;
  sum: number;
  /** What the next part reads: the sum, or its norm. */
  after: number;
}

export function measured(join: Join, x: ArrayLike<number>, f: ArrayLike<number>, after: ArrayLike<number>): Measured {
  const sum = Float64Array.from(x, (value, i) => value + f[i]!);
  return { join, stream: length(x), adds: length(f), cosine: cosine(x, f), sum: length(sum), after: length(after) };
}

/** A point of the river: where along it (in steps), and how wide. */
export interface Bank { at: number; width: number }

/** The width of the stream: each step adds to it, and a norm, if one follows, sets it back. */
export function banks(stops: readonly Measured[]): Bank[] {
  const points: Bank[] = [{ at: 0, width: stops[0]?.stream ?? 0 }];
  stops.forEach(({ stream, sum, after }, i) => {
    points.push({ at: i + 0.45, width: stream }, { at: i + 0.75, width: sum });
    points.push({ at: i + 1, width: after });
  });
  return points;
}

/** The outline of a band around a middle line, bent smoothly from point to point. */
export function band(points: readonly { x: number; half: number }[], middle: number): string {
  const edge = (some: readonly { x: number; half: number }[], sign: number): string => some.map(({ x, half }, i) => {
    const y = (middle + sign * half).toFixed(1), before = some[i - 1];
    if (!before) return `${x.toFixed(1)} ${y}`;
    const bend = ((x + before.x) / 2).toFixed(1);
    return `C${bend} ${(middle + sign * before.half).toFixed(1)} ${bend} ${y} ${x.toFixed(1)} ${y}`;
  }).join("");
  return `M${edge(points, -1)}L${edge([...points].reverse(), 1)}Z`;
}
