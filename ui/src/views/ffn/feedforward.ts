/** The feed-forward part of a block, found in the ops, and what its units do for one token. */

import type { Op, Plan } from "../../core/protocol";
import { order } from "../../core/vectors";

export interface FeedForward {
  /** Addresses: the input, the units before and after the activation, and the output. */
  of: string;
  pre: string;
  post: string;
  out: string;
  activation: string;
  /** The linear op whose result goes through the gates; null where there are none. */
  up: Op | null;
  /** The matrix whose columns the units write. */
  down: string;
}

export function feedForwardOf(plan: Plan, block: string): FeedForward | null {
  const own = plan.ops.filter((op) => op.out.startsWith(`${block}.ffn.`));
  const act = own.find((op) => op.op === "activation");
  const product = own.find((op) => op.op === "multiply");
  const down = own.find((op) => op.op === "linear" && op.inputs?.[0] === (product ?? act)?.out);
  const pre = own.find((op) => op.out === act?.inputs?.[0]);
  if (!act || !down || !pre) return null;
  const up = product?.inputs?.find((input) => input !== act.out);
  return {
    of: pre.inputs?.[0] ?? "", pre: pre.out, post: (product ?? act).out, out: down.out, activation: act.how ?? "",
    up: own.find((op) => op.out === up) ?? null, down: down.weights?.[0] ?? "",
  };
}

/** Units in the order of their size, largest first. */
export function strongest(values: ArrayLike<number>, count: number): number[] {
  return order(Array.from(values, Math.abs)).slice(0, count);
}

/** How many units lie above 0 before the activation. */
export function active(pre: ArrayLike<number>): number {
  let count = 0;
  for (let i = 0; i < pre.length; i++) if (pre[i]! > 0) count++;
  return count;
}

/** A column of a matrix that is stored row by row. */
export function column(matrix: ArrayLike<number>, columns: number, at: number): Float32Array {
  return Float32Array.from({ length: matrix.length / columns }, (_, row) => matrix[row * columns + at]!);
}
