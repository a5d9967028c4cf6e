/** Where a block adds to the residual stream, and its norms, found in the ops: for any place of the norms. */

import type { Op, Plan, StackName } from "../../core/protocol";
import { lettersOf } from "../../engine/taps";

export type JoinPart = "attn" | "cross" | "ffn";

/** x + f(x): the addresses of one addition. */
export interface Join {
  layer: number;
  part: JoinPart;
  /** x, f(x), and their sum. */
  stream: string;
  branch: string;
  sum: string;
  /** The stream that the next part reads: the sum, or its norm. */
  after: string;
}

/** A norm: what it reads, and its statistics. */
export interface Norm {
  of: string;
  out: string;
  /** null: no mean is subtracted (RMSNorm). */
  mean: string | null;
  rstd: string;
}

/** What is added takes back some of what was there where its cosine with that is below this. */
export const AGAINST = -0.25;

const BRANCH = /^(?:encoder|decoder)\.blocks\.(\d+)\.(attn|cross|ffn)(?:\.out|_out_norm\.out)$/;

/** Every addition to the stream of a stack, in order. */
export function joinsOf(plan: Plan, stack: StackName): Join[] {
  const own = plan.ops.filter((op) => op.out.startsWith(`${stack}.blocks.`));
  const readers = new Map<string, Op[]>();
  for (const op of own) for (const input of op.inputs ?? []) readers.set(input, [...(readers.get(input) ?? []), op]);
  return own.flatMap((op): Join[] => {
    const [stream = "", branch = ""] = op.inputs ?? [], match = BRANCH.exec(branch);
    if (op.op !== "add" || !match) return [];
    const part = match[2] as JoinPart;
    return [{ layer: Number(match[1]), part, stream, branch, sum: op.out, after: after(op.out, readers) }];
  });
}

/** The address in the stream that holds a sum: its own, or that of its norm. */
function after(sum: string, readers: ReadonlyMap<string, Op[]>): string {
  if (/\.resid_\w+$/.test(sum)) return sum;
  const next = readers.get(sum)?.find((op) => op.op === "norm" || op.op === "copy");
  return next ? after(next.out, readers) : sum;
}

/** The norms over the width of the model whose address begins so, in order; not those of queries and keys. */
export function normsOf(plan: Plan, start: string): Norm[] {
  const isOwn = ({ op, out }: Op): boolean => op === "norm" && out.startsWith(start) && lettersOf(out, 2) === "t d";
  return plan.ops.filter((op) => isOwn(op) && !/\.[qk]_norm\./.test(op.out))
    .map((op) => {
      const inputs = op.inputs ?? [];
      return { of: inputs[0] ?? "", out: op.out, mean: inputs.length === 3 ? inputs[1]! : null, rstd: inputs.at(-1) ?? "" };
    });
}

/** The norms of one addition: before the branch, of the branch, and after the sum. */
export function normsAround(plan: Plan, join: Join): { before: Norm[]; after: Norm[] } {
  const own = normsOf(plan, `${join.stream.split(".")[0]}.blocks.${join.layer}.${join.part}_`);
  const before = own.filter((norm) => norm.of === join.stream || norm.out === join.branch);
  return { before, after: own.filter((norm) => norm.of === join.sum) };
}
