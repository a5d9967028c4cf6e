/** What positions do to vectors and scores, computed by their ops. */

import type { Tensor } from "../../core/host";
import type { Op } from "../../core/protocol";
import { floats } from "../../core/tensor";
import { wave } from "../../engine/kinds/positions";
import { compute } from "../../engine/ops";
import { dot } from "../../core/vectors";

const upTo = (n: number, from = 0): Tensor => floats([n], Float32Array.from({ length: n }, (_, i) => from + i));

/** A sine and a cosine of one frequency, by their components. */
export interface Wave { sin: number; cos: number; frequency: number }

/** The pairs of components of sinusoidal positions, the fastest first; none of other positions. */
export function waves(op: Op): Wave[] {
  if (op.op !== "sinusoid") return [];
  const pairs = new Map<number, Wave>();
  for (let i = 0; i < (op.by?.width ?? 0); i++) {
    const { kind, frequency } = wave(op, i);
    const pair = pairs.get(frequency) ?? { sin: 0, cos: 0, frequency };
    pair[kind] = i;
    pairs.set(frequency, pair);
  }
  return [...pairs.values()];
}

/** A query or key as it is at a position: its pairs turned by the op's frequencies. */
export function turned(op: Op, x: Float32Array, position: number): Float32Array {
  return compute(op, [floats([1, x.length], x), upTo(1, position)], [], {}).data;
}

/** The same before it was turned there; a rotation may also stretch, by its `magnitude`. */
export function turnedBack(op: Op, x: Float32Array, position: number): Float32Array {
  const by = op.by?.magnitude ?? 1, n = 2 * (op.numbers?.length ?? 0);
  return turned(op, x, -position).map((y, i) => (i < n ? y / (by * by) : y));
}

/** q·k of a query and a key moved to two positions. */
export function scoreAt(op: Op, q: Float32Array, k: Float32Array, query: number, key: number): number {
  return dot(turned(op, q, query), turned(op, k, key));
}

/** By head, what is added to the score of a key that far away (key - query), from -n + 1 to n - 1. */
export function biasByDistance(op: Op, n: number, weights: Tensor[]): [distance: number, bias: number][][] {
  const { shape, data } = compute(op, [upTo(n)], weights, {});
  return Array.from({ length: shape[0] ?? 0 }, (_, head) => Array.from({ length: 2 * n - 1 }, (_, i) => {
    const distance = i - n + 1, query = Math.max(0, -distance), key = Math.max(0, distance);
    return [distance, data[(head * n + query) * n + key]!];
  }));
}
