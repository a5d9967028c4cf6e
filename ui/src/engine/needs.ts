/** Which numbers one number is made of: so little that a page can fetch it, never a whole matrix. */

import type { Op, Plan, StackName, Tensor } from "../core/protocol";
import { bucket, setting } from "./functions";
import { kindOf, type Kind } from "./ops";

/** What is at hand anyway: how values come about, and the whole numbers that the stacks read. */
export interface Context {
  plan: Plan;
  /** `encoder.ids`, `.types` and `.positions`. */
  numbers: ReadonlyMap<string, Tensor>;
}

/** A part of a value or of a parameter: an index on each axis, null for all of it. */
export interface Need {
  kind: "value" | "weight";
  name: string;
  index: (number | null)[];
}

/** Cell by cell: an index, or all of an axis, needs the same of the inputs. */
export const CELLWISE: ReadonlySet<string> = new Set<Kind>([
  "copy", "add", "scale", "soft_cap", "multiply", "activation", "mask", "repeat",
]);

/** What the number of `op` at an index is made of: its inputs, then its weights. */
export function needs(op: Op, index: readonly (number | null)[], context: Context): Need[] {
  return NEEDS[kindOf(op)](op, index as readonly number[], context);
}

type Find = (op: Op, index: readonly number[], context: Context) => Need[];

const NEEDS: Record<Kind, Find> = {
  lookup: (op, [t], context) => [weight(op, 0, [rowOf(op, t!, context), null])],
  unfold: (op, index, context) => [value(op, 0, pixelOf(op, index, context))],
  prepend: (op, [t, d]) => [t === 0 ? weight(op, 0, [null]) : value(op, 0, [t! - 1, d!])],
  sinusoid: () => [],
  copy: same,
  add: same,
  scale: same,
  soft_cap: same,
  multiply: same,
  activation: same,
  mask: same,
  linear: (op, index) => [...lastRow(op, index), weight(op, 0, [index.at(-1)!, null]), ...bias(op, 1)],
  split: (op, [h, t, k], context) => [value(op, 0, [t!, h! * headWidth(op, context) + k!])],
  repeat: (op, [h, ...rest]) => [value(op, 0, [Math.floor(h! / setting(op, "times")), ...rest])],
  mean: lastRow,
  rstd: (op, index) => [...lastRow(op, index), ...centre(op, index, 2)],
  norm: (op, index) => [value(op, 0, [...index]), ...centre(op, index, 3), scalar(op, -1, index), ...parameters(op)],
  rotate: (op, index) => pairOf(op, index).map((component) => value(op, 0, [...index.slice(0, -1), component])),
  relative_bias: (op, [, query, key], context) => [weight(op, 0, [bucketOf(op, query!, key!, context), null])],
  alibi: () => [],
  matmul_nt: (op, [h, t, s]) => [value(op, 0, [h!, t!, null]), value(op, 1, [h!, s!, null])],
  matmul: (op, [h, t, k]) => [value(op, 0, [h!, t!, null]), value(op, 1, [h!, null, k!])],
  softmax: lastRow,
  project: (op, [h, t, d]) => [value(op, 0, [h!, t!, null]), weight(op, 0, [d!, null])],
  sum_heads: (op, [t, d]) => [value(op, 0, [null, t!, d!]), ...bias(op, 0)],
  pool: (op, [d], context) => [value(op, 0, [pooledRow(op, context), d!])],
};

function value(op: Op, input: number, index: (number | null)[]): Need {
  return { kind: "value", name: op.inputs?.at(input) ?? "", index };
}

function weight(op: Op, i: number, index: (number | null)[]): Need {
  return { kind: "weight", name: op.weights?.[i] ?? "", index };
}

// --- inputs ----------------------------------------------------------------------------------------------------------

function same(op: Op, index: readonly number[]): Need[] {
  return (op.inputs ?? []).map((_, i) => value(op, i, [...index]));
}

function lastRow(op: Op, index: readonly number[]): Need[] {
  return [value(op, 0, [...index.slice(0, -1), null])];
}

/** One number of a row, such as its rstd. */
function scalar(op: Op, input: number, index: readonly number[]): Need {
  return value(op, input, [...index.slice(0, -1), 0]);
}

/** The mean that is taken off, where the op has that many inputs. */
function centre(op: Op, index: readonly number[], inputs: number): Need[] {
  return op.inputs?.length === inputs ? [scalar(op, 1, index)] : [];
}

function pixelOf(op: Op, [patch, j]: readonly number[], context: Context): number[] {
  const n = setting(op, "size"), columns = stackOf(op, context).input.image_size! / n;
  const top = Math.floor(patch! / columns) * n, left = (patch! % columns) * n;
  return [Math.floor(j! / (n * n)), top + (Math.floor(j! / n) % n), left + (j! % n)];
}

/** The components that turn together; one alone where it does not turn. */
export function pairOf(op: Op, index: readonly number[]): number[] {
  const n = op.numbers?.length ?? 0, component = index.at(-1)!;
  return component >= 2 * n ? [component] : [component % n, (component % n) + n];
}

function pooledRow(op: Op, context: Context): number | null {
  const positions = numbersAt(`${stackName(op.inputs?.[0] ?? "")}.positions`, context);
  return op.how === "mean" ? null : op.how === "last" ? positions.length - 1 : 0;
}

// --- weights ---------------------------------------------------------------------------------------------------------

function bias(op: Op, i: number): Need[] {
  return op.weights?.[i] ? [weight(op, i, [null])] : [];
}

function parameters(op: Op): Need[] {
  return [0, 1].flatMap((i) => bias(op, i));
}

/** The row of a table that a position looks up. */
export function rowOf(op: Op, t: number, context: Context): number {
  return inputNumber(op, t, context) + setting(op, "offset", 0);
}

export function bucketOf(op: Op, query: number, key: number, context: Context): number {
  return bucket(op, inputNumber(op, key, context) - inputNumber(op, query, context));
}

// --- context ---------------------------------------------------------------------------------------------------------

/** What a stack reads at a position: the last of the op's inputs that is whole numbers. */
export function inputNumber(op: Op, t: number, context: Context): number {
  const name = op.inputs?.at(-1) ?? "", found = numbersAt(name, context)[t];
  if (found === undefined) throw new Error(`${op.out}: ${name} has no position ${t}`);
  return found;
}

function numbersAt(name: string, context: Context): ArrayLike<number> {
  const found = context.numbers.get(name);
  if (!found) throw new Error(`expected ${name} with the context, got none`);
  return found.data;
}

export function stackName(path: string): StackName {
  return path.startsWith("encoder.") ? "encoder" : "decoder";
}

function stackOf(op: Op, context: Context): NonNullable<Plan["config"]["encoder"]> {
  const found = context.plan.config[stackName(op.out)];
  if (!found) throw new Error(`${op.out}: the config has no such stack`);
  return found;
}

export function headWidth(op: Op, context: Context): number {
  const stack = stackOf(op, context);
  return stack.d_head ?? stack.d_model / stack.n_heads;
}
