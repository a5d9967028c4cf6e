/** Vectors as points and arrows of a plane. */

import type { Tensor } from "../../core/host";
import { row } from "../../core/tensor";
import { dot, length } from "../../core/vectors";

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

/** Vectors before and after, in the plane of what joins a pair before and after: those two lengths are true. */
export function flights(from: Float32Array[], to: Float32Array[], one = 0, other = one): Flight[] {
  const less = (x: Float32Array, y: Float32Array, by = 1): Float32Array => x.map((value, d) => value - by * y[d]!);
  const unit = (x: Float32Array): Float32Array => x.map((value) => value / (length(x) || 1));
  const is = less(to[other]!, to[one]!), across = unit(length(is) ? is : less(to[one]!, from[one]!)), was = less(from[other]!, from[one]!);
  const up = unit(less(was, across, dot(was, across))), place = (x: Float32Array): [number, number] => [dot(x, across), dot(x, up)];
  return to.map((_, i) => ({ from: place(from[i]!), to: place(to[i]!) }));
}

export interface Approach { one: number; other: number; was: number; is: number }

/** The pairs of some vectors, with their distances before and after. */
export function approaches(from: Float32Array[], to: Float32Array[], among: readonly number[]): Approach[] {
  const away = (all: Float32Array[], i: number, j: number): number => length(all[i]!.map((x, d) => x - all[j]![d]!));
  return among.flatMap((one, i) => among.slice(i + 1).map((other) => ({ one, other, was: away(from, one, other), is: away(to, one, other) })));
}
