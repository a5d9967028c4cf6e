/** A batch of sentences through a network and back: every op on all of them at once, in rows that are padded to one length. */

import type { Op, Plan, StackName } from "../../core/protocol";
import { floats, type Floats } from "../../core/tensor";
import { inputsOf, weightsOf } from "../forward";
import { isOpen, maskOf } from "../functions";
import { compute } from "../ops";
import { vjpOf } from "./vjp";

/** The ids that each stack reads, and for each that the last stack reads the id that it should say, -1 where none is asked. */
export interface Example {
  ids: Partial<Record<StackName, readonly number[]>>;
  labels: readonly number[];
}

/** What is switched off: addresses of whole values, or of one head of them. */
export type Off = readonly { path: string; head?: number }[];

export interface BatchPass {
  n: number;
  /** How many places a stack has in each sentence. */
  width: Partial<Record<StackName, number>>;
  values: Map<string, Floats>;
  numbers: Map<string, Floats>;
  labels: Int32Array;
}

/** Every value. Attention sees sentences one by one (`h·b t s`), all other ops see one long row of positions. */
export function forwardBatch(plan: Plan, weights: ReadonlyMap<string, Floats>, examples: readonly Example[], off: Off = []): BatchPass {
  const n = examples.length, numbers = new Map<string, Floats>(), values = new Map<string, Floats>();
  const width: BatchPass["width"] = {}, lengths: Record<string, number[]> = {};
  for (const stack of ["encoder", "decoder"] as const) {
    if (!plan.config[stack]) continue;
    lengths[stack] = examples.map(({ ids }) => ids[stack]!.length);
    const most = (width[stack] = Math.max(...lengths[stack]));
    const filled = (value: (one: Example, t: number) => number): Floats => floats([n * most], Float32Array.from({ length: n * most }, (_, i) => value(examples[Math.floor(i / most)]!, i % most)));
    numbers.set(`${stack}.ids`, filled(({ ids }, t) => ids[stack]![t] ?? 0));
    numbers.set(`${stack}.positions`, filled((_, t) => t));
  }
  const last = width.decoder ?? width.encoder!;
  const labels = Int32Array.from({ length: n * last }, (_, i) => examples[Math.floor(i / last)]!.labels[i % last] ?? -1);
  const pass = { n, width, values, numbers, labels };
  for (const op of plan.ops) {
    const inputs = callOf(op, pass), own = weightsOf(op, weights);
    const made = op.op === "mask" ? masked(op, inputs[0]!, plan, lengths[/^encoder|\.cross\./.test(op.out) ? "encoder" : "decoder"]!) : compute(op, inputs, own, plan.masks);
    const [hb, t, k] = made.shape, value = op.op === "matmul" ? floats([hb! / n, t! * n, k!], made.data) : made;
    for (const one of off) if (one.path === op.out) partOf(value, one.head).fill(0);
    values.set(op.out, value);
  }
  return pass;
}

/** The inputs of an op: products of attention have them sentence by sentence. */
function callOf(op: Op, { n, values, numbers }: Pick<BatchPass, "n" | "values" | "numbers">): Floats[] {
  const inputs = inputsOf(op, values, numbers) as Floats[];
  if (!op.op.startsWith("matmul")) return inputs;
  return inputs.map((one, i) => (op.op === "matmul" && i === 0 ? one : floats([one.shape[0]! * n, one.shape[1]! / n, one.shape[2]!], one.data)));
}

/** Closes what the mask closes, and keys beyond the end of a sentence. Rows beyond the end, which
 *  nobody asks about, stay near it: a window has a key open there. */
function masked(op: Op, { shape, data }: Floats, plan: Plan, lengths: readonly number[]): Floats {
  const [, t, s] = shape as [number, number, number], rule = maskOf(op, plan.masks), out = floats(shape);
  for (let i = 0; i < data.length; i++) {
    const row = Math.floor(i / s), key = i % s, length = lengths[Math.floor(row / t) % lengths.length]!;
    const query = Math.min(row % t, length - 1 + (rule.window ?? s) - 1);
    out.data[i] = key < length && isOpen(rule, query, key) ? data[i]! : -Infinity;
  }
  return out;
}

/** The numbers of one head, or all. */
function partOf({ shape, data }: Pick<Floats, "shape" | "data">, head?: number): Float32Array {
  const each = data.length / shape[0]!;
  return head === undefined ? data : data.subarray(head * each, (head + 1) * each);
}

/** The mean loss in nats of the places that ask for an answer, and with `g` its gradient there. */
export function crossEntropy({ shape, data }: Floats, labels: Int32Array, g?: Float32Array): number {
  const v = shape.at(-1)!, asked = labels.reduce((sum, label) => sum + (label < 0 ? 0 : 1), 0);
  let loss = 0;
  for (let i = 0; i < labels.length; i++) {
    const label = labels[i]!, at = i * v;
    if (label < 0) continue;
    let most = -Infinity, sum = 0;
    for (let j = at; j < at + v; j++) most = Math.max(most, data[j]!);
    for (let j = at; j < at + v; j++) sum += Math.exp(data[j]! - most);
    loss += (most + Math.log(sum) - data[at + label]!) / asked;
    if (g) for (let j = at; j < at + v; j++) g[j] = (Math.exp(data[j]! - most) / sum - (j === at + label ? 1 : 0)) / asked;
  }
  return loss;
}

/** The gradient of the loss for each parameter; those that share their numbers share it. */
export function backward(plan: Plan, weights: ReadonlyMap<string, Floats>, pass: BatchPass, off: Off = []): { loss: number; gradients: Map<Floats, Float32Array> } {
  const gradients = new Map<Floats, Float32Array>(), of = new Map<string, Float32Array>();
  const sumFor = (name: string): Float32Array | null => {
    const value = pass.values.get(name);
    if (!value) return null;
    if (!of.has(name)) of.set(name, new Float32Array(value.data.length));
    return of.get(name)!;
  };
  const logits = plan.ops.at(-1)!.out, loss = crossEntropy(pass.values.get(logits)!, pass.labels, sumFor(logits)!);
  for (const op of [...plan.ops].reverse()) {
    const g = of.get(op.out);
    if (!g) continue;
    const y = pass.values.get(op.out)!;
    for (const one of off) if (one.path === op.out) partOf({ shape: y.shape, data: g }, one.head).fill(0);
    const w = (op.weights ?? []).map((name) => weights.get(name)!), dx = (op.inputs ?? []).map(sumFor);
    for (const one of w) if (!gradients.has(one)) gradients.set(one, new Float32Array(one.data.length));
    vjpOf(op)({ op, x: callOf(op, pass), w, y, g, dx, dw: w.map((one) => gradients.get(one)!) });
    of.delete(op.out);
  }
  return { loss, gradients };
}
