/** Every kind of op by its name: out = op(inputs, weights), as clearhead/model/ops.py lists them for any architecture.
 *
 * The twin of clearhead/model/ops.py and its neighbours. Numbers are kept in float32 and summed in float64.
 */

import type { Tensor } from "../core/host";
import type { Op } from "../core/protocol";
import { toFloats, type Floats } from "../core/tensor";
import { fail, type Cell, type Masks, type Need, type OpKind } from "./kind";
import { ATTENTION } from "./kinds/attention";
import { CELLS } from "./kinds/cells";
import { CONVOLUTIONS } from "./kinds/convolutions";
import { EXPERTS } from "./kinds/experts";
import { GRIDS } from "./kinds/grids";
import { INPUTS } from "./kinds/inputs";
import { LINEAR } from "./kinds/linear";
import { NORMS } from "./kinds/norms";
import { POSITIONS } from "./kinds/positions";
import { STATES } from "./kinds/states";

const RECORDS = { ...INPUTS, ...POSITIONS, ...CELLS, ...LINEAR, ...NORMS, ...ATTENTION, ...EXPERTS, ...GRIDS, ...CONVOLUTIONS, ...STATES } satisfies Record<string, OpKind>;

export const KINDS = Object.keys(RECORDS) as (keyof typeof RECORDS)[];

export function kindOf(op: Op): OpKind {
  const name = KINDS.find((kind) => kind === op.op) ?? fail(op, `no op is called "${op.op}"`);
  return RECORDS[name];
}

/** The result of an op, for queries from a position on. Throws a one-line Error for what does not fit it. */
export function compute(op: Op, inputs: readonly Tensor[], weights: readonly Tensor[], masks: Masks, from = 0): Floats {
  const kind = kindOf(op), [least, most] = kind.inputs;
  if (inputs.length < least || inputs.length > most) fail(op, `${op.op} takes ${least} to ${most} values`);
  return kind.compute({ op, x: inputs.map(toFloats), w: weights.map(toFloats), masks, from });
}

/** What one number of an op's output is made of: its inputs, then its weights. */
export function needs(cell: Cell): Need[] {
  return kindOf(cell.op).needs(cell);
}
