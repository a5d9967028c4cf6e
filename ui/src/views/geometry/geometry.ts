/** How far vectors are from each other. */

import type { Tensor } from "../../core/host";
import { row } from "../../core/tensor";
import { length } from "../../core/vectors";
import { around } from "../../draw/grid";

/** Rows of a tensor `t d`; of unit length where only directions matter. */
export function rowsOf(tensor: Tensor, positions: readonly number[], unit: boolean): Float32Array[] {
  return positions.map((position) => {
    const vector = Float32Array.from(row(tensor, position)), size = length(vector);
    return unit && size > 0 ? vector.map((x) => x / size) : vector;
  });
}

/** `most` positions of n around one of them. */
export function window(n: number, at: number, most: number): number[] {
  const start = around(at, most, n);
  return Array.from({ length: Math.min(n, most) }, (_, i) => start + i);
}

export interface Approach { one: number; other: number; was: number; is: number }

/** How far two vectors are apart, before and after. */
export function approach(from: Float32Array[], to: Float32Array[], one: number, other: number): Approach {
  const away = (all: Float32Array[]): number => length(all[one]!.map((x, d) => x - all[other]![d]!));
  return { one, other, was: away(from), is: away(to) };
}
