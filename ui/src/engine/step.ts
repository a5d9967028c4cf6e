/** What every op's function is given. */

import type { Mask, Op } from "../core/protocol";
import type { Floats } from "../core/tensor";

export type Masks = Readonly<Record<string, Mask>>;

/** An op with its inputs and its weights. */
export interface Step {
  op: Op;
  x: Floats[];
  w: Floats[];
  masks: Masks;
}

export function weight(s: Step, i: number): Floats {
  return s.w[i] ?? fail(s.op, `${s.op.op} needs ${i + 1} weights`);
}

export function fail(op: Op, why: string): never {
  throw new Error(`${op.out}: ${why}`);
}
