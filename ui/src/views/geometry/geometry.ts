/** Vectors as points and arrows of a plane. */

import type { Tensor } from "../../core/host";
import { plane } from "../../core/plane";
import { row } from "../../core/tensor";
import { length } from "../../core/vectors";

/** Rows of a tensor `t d`; of unit length where only directions matter. */
export function rowsOf(tensor: Tensor, positions: readonly number[], unit: boolean): Float32Array[] {
  return positions.map((position) => {
    const vector = Float32Array.from(row(tensor, position)), size = length(vector);
    return unit && size > 0 ? vector.map((x) => x / size) : vector;
  });
}

/** `most` positions of n around one of them. */
export function window(n: number, around: number, most: number): number[] {
  const start = Math.max(0, Math.min(n - most, around - Math.floor(most / 2)));
  return Array.from({ length: Math.min(n, most) }, (_, i) => start + i);
}

export interface Flight { from: [number, number]; to: [number, number] }

/** Vectors before and after, in the plane that keeps most of both. */
export function flights(from: Float32Array[], to: Float32Array[]): { flights: Flight[]; explained: number } {
  const { points, explained } = plane([...from, ...to]);
  return { flights: to.map((_, i) => ({ from: points[i]!, to: points[from.length + i]! })), explained };
}

export interface Approach { one: number; other: number; was: number; is: number }

/** The pairs of some vectors, with their distances before and after. */
export function approaches(from: Float32Array[], to: Float32Array[], among: readonly number[]): Approach[] {
  const away = (all: Float32Array[], i: number, j: number): number => length(all[i]!.map((x, d) => x - all[j]![d]!));
  return among.flatMap((one, i) => among.slice(i + 1).map((other) => ({ one, other, was: away(from, one, other), is: away(to, one, other) })));
}
