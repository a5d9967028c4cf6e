/** One position on the way from its id to the input of the first block. */

import type { Tensor } from "../../core/host";
import type { Op, StackName } from "../../core/protocol";
import { compute } from "../../engine/ops";
import type { Run } from "../../parts/kit";

/** What one op of the embedding makes at one position: row `at` of its value. */
export interface EmbedStep { op: Op; row: Float32Array; at: number }

/** The ops that make what a stack's first block reads, in order. */
export function embedOps(ops: readonly Op[], stack: StackName): Op[] {
  return ops.filter((op) => op.out.startsWith(`${stack}.embed.`));
}

/** Every step at one position. Only one row of a table is fetched: tables are large. A class token has no step before
 *  the one that prepends it. */
export async function embedSteps(run: Run, stack: StackName, position: number): Promise<EmbedStep[]> {
  const rows = new Map<string, Tensor>();
  const steps: EmbedStep[] = [];
  for (const op of embedOps(run.plan.ops, stack)) {
    if (op.op === "unfold" || op.op === "linear") {
      const patch = patchStep(op, await run.value(op.out), run, position);
      if (patch) steps.push(patch);
      continue;
    }
    const row = await rowOf(op, run, position, rows);
    rows.set(op.out, { shape: [1, row.length], data: row });
    steps.push({ op, row, at: position });
  }
  return steps;
}

async function rowOf(op: Op, run: Run, position: number, rows: ReadonlyMap<string, Tensor>): Promise<Float32Array> {
  const weights = op.weights ?? [], [input = ""] = op.inputs ?? [];
  const inputs = (op.inputs ?? []).flatMap((name) => rows.get(name) ?? []);
  if (op.op === "lookup" && !(op.out in run.reply.facts)) {
    const at = `${weights[0]}[i=${(run.numbers.get(input)?.data[position] ?? 0) + (op.by?.offset ?? 0)}]`;
    return Float32Array.from((await run.weights([at])).get(at)?.data ?? []);
  }
  if (op.out in run.reply.facts || inputs.length < (op.inputs ?? []).length) {
    return Float32Array.from((await run.value(`${op.out}[t=${position}]`)).data);
  }
  const given = weights.length ? await run.weights(weights) : new Map<string, Tensor>();
  return compute(op, inputs, weights.map((name) => given.get(name)!), run.plan.masks).data;
}

/** Patches are counted without the class token. */
function patchStep(op: Op, patches: Tensor, run: Run, position: number): EmbedStep | null {
  const [n = 0, width = 0] = patches.shape;
  const all = run.reply.facts[op.out.replace(/\.embed\..*$/, ".embed.sum")]?.shape[0] ?? n;
  const at = position - (all - n);
  return at < 0 ? null : { op, at, row: Float32Array.from(patches.data.subarray(at * width, (at + 1) * width)) };
}
