/** A value that the host does not store, from those that it does, by the one op that makes it.
 *
 * Only heads are cut out: [h=2] of a product of q and k needs q[h=2] and k[h=2]; other indices are taken afterwards.
 */

import { formatAddress, indexed, type Address } from "../core/address";
import type { Op, Tensor } from "../core/protocol";
import { compute } from "../engine/ops";
import { lettersOf } from "../engine/taps";
import type { Run } from "./run";

/** Ops each head of which needs that head of its inputs alone. */
const BY_HEAD = new Set(["copy", "add", "scale", "soft_cap", "rotate", "matmul_nt", "matmul", "mask", "softmax", "repeat"]);

export async function derive(op: Op, address: Address, run: Run): Promise<Tensor> {
  const head = address.index.find(([axis]) => axis === "h")?.[1];
  const byHead = head !== undefined && BY_HEAD.has(op.op) && !op.weights?.length;
  const inputs = await Promise.all((op.inputs ?? []).map((input) => inputOf(input, byHead ? head : undefined, op, run)));
  const weights = op.weights?.length ? await run.weights(op.weights) : new Map<string, Tensor>();
  const rows = (op.weights ?? []).map((name) => weights.get(name)!);
  // One head of what a group of queries shares is that group's.
  const made = byHead && op.op === "repeat" ? inputs[0]! : compute(op, inputs, rows, run.plan.masks);
  const rest = address.index.filter(([axis]) => !(byHead && axis === "h"));
  if (rest.length === 0) return made;
  const axes = lettersOf(op.out, made.shape.length);
  if (!axes) throw new Error(`${formatAddress(address)}: no such part`);
  return indexed(made, axes, rest);
}

async function inputOf(input: string, head: number | undefined, op: Op, run: Run): Promise<Tensor> {
  if (/^(encoder|decoder)\.(ids|types|positions)$/.test(input)) return wholeNumbers(input, run);
  if (head === undefined) return run.value(input);
  const group = op.op === "repeat" ? (op.by?.times ?? 1) : 1;
  return run.value(`${input}[h=${Math.floor(head / group)}]`);
}

function wholeNumbers(name: string, run: Run): Tensor {
  const [stack, kind] = name.split(".") as ["encoder" | "decoder", string];
  const tokens = run.reply.tokens[stack] ?? [];
  const n = run.reply.facts[`${stack}.embed.sum`]?.shape[0] ?? tokens.length;
  const of = (i: number): number => (kind === "ids" ? tokens[i]?.id : kind === "types" ? tokens[i]?.type : i) ?? 0;
  return { shape: [n], data: Float32Array.from({ length: n }, (_, i) => of(i)) };
}
