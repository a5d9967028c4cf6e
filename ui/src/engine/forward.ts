/** A whole forward pass in the page: every op in order, with the edits. */

import type { Tensor } from "../core/host";
import type { Check, Edit, ModelConfig, Op, Plan, StackName, Token } from "../core/protocol";
import { floats, largest, toFloats, type Floats } from "../core/tensor";
import { byPath, edited, noSuch, type Other } from "./edits";
import { compute } from "./ops";
import { Rounded } from "./rounded/rounded";
import { SHARES } from "./taps";

export interface Pass {
  readonly plan: Plan;
  readonly weights: ReadonlyMap<string, Tensor>;
  /** What the stacks read: `encoder.ids`, `.types` and `.positions`, or `encoder.embed.pixels`. */
  readonly numbers: ReadonlyMap<string, Tensor>;
  readonly edits: readonly Edit[];
  /** The value of every op by its address, in the order of computation. */
  readonly values: ReadonlyMap<string, Floats>;
}

export interface Options {
  /** Where a patch comes from. */
  other?: Other;
}

/** Computes every value. Throws a one-line Error for an edit of no value, for one that does not fit, and for numbers
 *  that are not finite. */
export function forward(
  plan: Plan,
  weights: ReadonlyMap<string, Tensor>,
  numbers: ReadonlyMap<string, Tensor>,
  edits: readonly Edit[] = [],
  options: Options = {},
): Pass {
  return evaluate({ plan, weights, numbers, edits }, null, options);
}

/** The same pass with other edits. Only what follows from a change is computed again; the rest is shared. */
export function rerun(previous: Pass, edits: readonly Edit[], options: Options = {}): Pass {
  return evaluate({ ...previous, edits }, previous, options);
}

function evaluate(what: Omit<Pass, "values">, previous: Pass | null, options: Options): Pass {
  const { plan, weights, numbers, edits } = what;
  const edit = byPath(edits), stale = previous ? changed(previous.edits, edits) : null;
  const values = new Map<string, Floats>();
  for (const op of plan.ops) {
    const kept = stale && !isStale(op, stale) ? previous?.values.get(op.out) : undefined;
    if (kept) {
      values.set(op.out, kept);
      continue;
    }
    stale?.add(op.out);
    let value = compute(op, inputsOf(op, values, numbers), weightsOf(op, weights), plan.masks);
    for (const one of edit.get(op.out) ?? []) value = edited(value, one.edit, one.at, options.other);
    checkFinite(op, value);
    values.set(op.out, value);
  }
  for (const path of edit.keys()) {
    if (!values.has(path)) throw new Error(noSuch(path));
  }
  return { plan, weights, numbers, edits, values };
}

/** How far every op, computed again from the values that it read, is from its value; and the weights' rows from 1. A
 *  value that an edit made counts as an input. */
export function check({ plan, weights, numbers, edits, values }: Pass): Check {
  const byHand = byPath(edits), found = { recompute_max_abs: 0, recompute_max_relative: 0, rows_sum_max_error: 0 };
  for (const op of plan.ops) {
    const { data } = values.get(op.out)!;
    if (byHand.has(op.out)) continue;
    const own = weightsOf(op, weights).map((one) => (one instanceof Rounded ? one.exactly() : one));
    const again = compute(op, inputsOf(op, values, numbers), own, plan.masks).data;
    let most = 0;
    for (let i = 0; i < data.length; i++) if (data[i] !== again[i]) most = Math.max(most, Math.abs(data[i]! - again[i]!));
    found.recompute_max_abs = Math.max(found.recompute_max_abs, most);
    found.recompute_max_relative = Math.max(found.recompute_max_relative, most / Math.max(largest(data), 1e-30));
    if (SHARES.test(op.out)) found.rows_sum_max_error = Math.max(found.rows_sum_max_error, sumError(values.get(op.out)!));
  }
  return found;
}

/** How far the sums of rows are from 1. */
function sumError({ shape, data }: Floats): number {
  const n = shape.at(-1)!;
  let most = 0;
  for (let at = 0; at < data.length; at += n) most = Math.max(most, Math.abs(data.subarray(at, at + n).reduce((sum, x) => sum + x, -1)));
  return most;
}

/** The paths whose edits changed. */
function changed(before: readonly Edit[], after: readonly Edit[]): Set<string> {
  const old = byPath(before), now = byPath(after);
  const text = (edits: typeof old, path: string): string => JSON.stringify(edits.get(path)?.map((one) => one.edit));
  return new Set([...old.keys(), ...now.keys()].filter((path) => text(old, path) !== text(now, path)));
}

export function isStale(op: Op, stale: ReadonlySet<string>): boolean {
  return stale.has(op.out) || (op.inputs ?? []).some((input) => stale.has(input));
}

export function inputsOf(op: Op, values: Pick<ReadonlyMap<string, Floats>, "get">, numbers: ReadonlyMap<string, Tensor>): Tensor[] {
  return (op.inputs ?? []).map((name) => {
    const found = values.get(name) ?? numbers.get(name);
    if (!found) throw new Error(`${op.out}: needs ${name}, which no op made`);
    return found;
  });
}

export function weightsOf(op: Op, weights: ReadonlyMap<string, Tensor>): Tensor[] {
  return (op.weights ?? []).map((name) => weights.get(name) ?? missing(op, name));
}

function missing(op: Op, name: string): never {
  throw new Error(`${op.out}: needs the parameter ${name}, which the model does not have`);
}

/** -Infinity closes a cell. No other value may be infinite or NaN. */
function checkFinite(op: Op, { data }: Floats): void {
  for (let i = 0; i < data.length; i++) {
    if (!(data[i]! < Infinity)) {
      throw new Error(`${op.out}: expected finite numbers, got NaN or infinity; try another edit`);
    }
  }
}

/** In place of an image that stays with its host: what is made of its pixels cannot be computed. */
export const NO_PIXELS: Tensor = floats([0, 0, 0]);

/** What the stacks read: ids and types of tokens, or the pixels of an image (c y x) or the frames or samples of a sound (x c), and positions. */
export function numbersOf(
  config: ModelConfig,
  tokens: Partial<Record<StackName, readonly Pick<Token, "id" | "type">[]>>,
  pixels?: Tensor,
): Map<string, Tensor> {
  const numbers = new Map<string, Tensor>();
  for (const stack of ["encoder", "decoder"] as const) {
    const reads = config[stack]?.input;
    if (!reads) continue;
    const read = tokens[stack] ?? [];
    let length = read.length;
    if (reads.kind === "patches") {
      if (!pixels) throw new Error(`${stack}.embed.pixels: expected an image, got none`);
      numbers.set(`${stack}.embed.pixels`, toFloats(pixels));
      length = (reads.image_size! / reads.patch_size!) ** 2 + (reads.class_token === false ? 0 : 1) + (reads.n_registers ?? 0);
    } else if (reads.kind === "frames") {
      if (!pixels) throw new Error(`${stack}.embed.frames: expected a sound, got none`);
      numbers.set(`${stack}.embed.frames`, toFloats(pixels));
      length = Number(reads.n_frames) / 2;
    } else if (reads.kind === "samples") {
      if (!pixels) throw new Error(`${stack}.embed.samples: expected a sound, got none`);
      numbers.set(`${stack}.embed.samples`, toFloats(pixels));
      length = reads.convolutions!.reduce((n, { width, step }) => Math.floor((n - width) / step) + 1, pixels.shape[0]!);
    }
    numbers.set(`${stack}.ids`, vector(read.map((token) => token.id)));
    numbers.set(`${stack}.types`, vector(read.map((token) => token.type)));
    numbers.set(`${stack}.positions`, vector(Array.from({ length }, (_, i) => i)));
  }
  return numbers;
}

function vector(numbers: number[]): Floats {
  return floats([numbers.length], Float32Array.from(numbers));
}
