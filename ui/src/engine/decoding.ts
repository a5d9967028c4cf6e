/** A decoder that reads a few tokens at a time: each step computes its own positions alone, with the keys and values of
 *  those before, as clearhead/generation does with its cache. */

import { parseAddress, type Address } from "../core/address";
import type { Tensor } from "../core/host";
import type { Edit, Op, Plan } from "../core/protocol";
import { axisLength, floats, row, toFloats, type Floats } from "../core/tensor";
import { byPath, edited, noSuch, type Other } from "./edits";
import { compute, kindOf } from "./ops";
import { axesOf } from "./taps";

/** What has been read: the number of tokens, and their keys and values by address (h s k). */
export interface Past { readonly length: number; readonly kept: ReadonlyMap<string, Floats> }

export const NOTHING: Past = { length: 0, kept: new Map() };

const IDS = "decoder.ids", TYPES = "decoder.types", POSITIONS = "decoder.positions";

export interface Read { logits: Float32Array; past: Past }

/** Milliseconds a token in a trial, where there was one, and why WebGPU does not compute. */
export interface Measured { webgpu: number | null; wasm: number | null; why: string | null }

/** Reads tokens after what has been read: `Decoding`, or another that computes the same. */
export interface Reader {
  read(past: Past, ids: readonly number[]): Read | Promise<Read>;
  /** Frees what is outside JavaScript's memory. */
  end?(): void;
  measured?: Measured;
}

export class Decoding implements Reader {
  /** The ops that wait for the decoder's tokens, and the values of all others. */
  readonly growing: Op[] = [];
  readonly fixed = new Map<string, Tensor>();
  /** Addresses of keys and values of self-attention. */
  readonly kept: ReadonlySet<string>;
  /** Whether a state makes positions of those before: each step then computes all of them again. */
  readonly isWhole: boolean;
  readonly #edits: ReadonlyMap<string, { edit: Edit; at: Address }[]>;

  /** `numbers` are those of the encoder, if there is one. Every edit must be one that can be made position by position. */
  constructor(
    readonly plan: Plan,
    private readonly weights: ReadonlyMap<string, Tensor>,
    numbers: ReadonlyMap<string, Tensor>,
    edits: readonly Edit[],
    private readonly other?: Other,
  ) {
    this.#edits = byPath(edits);
    const grows = new Set([IDS, TYPES, POSITIONS]);
    for (const [name, tensor] of numbers) if (!grows.has(name)) this.fixed.set(name, tensor);
    for (const op of plan.ops) {
      if ((op.inputs ?? []).some((input) => grows.has(input))) {
        grows.add(op.out);
        this.growing.push(op);
      } else this.fixed.set(op.out, this.#changed(op.out, compute(op, this.#inputs(op, new Map()), this.weightsOf(op), plan.masks)));
    }
    const products = this.growing.filter((op) => op.op === "matmul_nt" || op.op === "matmul");
    this.isWhole = this.growing.some((op) => op.out.endsWith(".mix.out"));
    this.kept = new Set(this.isWhole ? [] : products.map((op) => op.inputs![1]!).filter((input) => grows.has(input)));
    for (const path of this.#edits.keys()) {
      if (!this.fixed.has(path) && !grows.has(path)) throw new Error(noSuch(path));
    }
  }

  /** Whether an edit changes what grows. */
  get isEdited(): boolean {
    return this.growing.some((op) => this.#edits.has(op.out));
  }

  /** Reads more tokens: the logits of the last one, and all that has been read then. */
  read(past: Past, ids: readonly number[]): Read {
    const all = this.isWhole ? [...(past.kept.get(IDS)?.data ?? []), ...ids] : ids, length = past.length + ids.length, from = length - all.length;
    const values = this.begun(from, all), kept = new Map<string, Floats>(this.isWhole ? [[IDS, vector(all)]] : []);
    for (const op of this.growing) {
      let value = this.value(op, values, from, length);
      if (this.kept.has(op.out)) kept.set(op.out, (value = joined(past.kept.get(op.out), value)));
      values.set(op.out, value);
    }
    return { logits: (values.get("head.logits") as Floats).data, past: { length, kept } };
  }

  /** The numbers of tokens from a position on. */
  begun(from: number, ids: readonly number[]): Map<string, Tensor> {
    return new Map([[IDS, vector(ids)], [TYPES, vector(ids.map(() => 0))], [POSITIONS, vector(ids.map((_, i) => from + i))]]);
  }

  /** The value of an op for the positions between two; of the head, for the last one. */
  value(op: Op, values: ReadonlyMap<string, Tensor>, from: number, length: number): Floats {
    const isHead = isOfHead(op), inputs = kindOf(op).pairwise ? [vector(Array.from({ length }, (_, i) => i))] : this.#inputs(op, values);
    const given = isHead ? inputs.map((value) => lastRow(toFloats(value))) : inputs;
    return this.#changed(op.out, compute(op, given, this.weightsOf(op), this.plan.masks, from), isHead ? length - 1 : from);
  }

  weightsOf(op: Op): Tensor[] {
    return (op.weights ?? []).map((name) => this.weights.get(name) ?? missing(op, name));
  }

  #inputs(op: Op, values: ReadonlyMap<string, Tensor>): Tensor[] {
    return (op.inputs ?? []).map((name) => values.get(name) ?? this.fixed.get(name) ?? missing(op, name));
  }

  /** The value of positions from one on, with the edits of these positions; of a fixed value, `from` is null. */
  #changed(path: string, value: Floats, from: number | null = null): Floats {
    let made = value;
    for (const { edit, at } of this.#edits.get(path) ?? []) {
      const here = from === null ? at : shifted(at, made, from);
      if (here) made = edited(made, edit, here, this.other);
    }
    return made;
  }
}

/** Whether an op reads the last position alone. */
export function isOfHead(op: Op): boolean {
  return op.out.startsWith("head.");
}

/** The address in a value whose first position is `from`; null if it lies outside. Scores and weights have every key. */
function shifted({ path, index }: Address, value: Floats, from: number): Address | null {
  const axes = axesOf(path, value.shape.length)?.split(" ") ?? [], moved = axes.includes("t") ? "t" : "s";
  const places = index.map(([axis, i]): [string, number] => [axis, axis === moved && !isOfSource(path, axis) ? i - from : i]);
  const isInside = places.every(([axis, i]) => (axis !== "t" && axis !== "s") || isOfSource(path, axis) || (i >= 0 && i < (value.shape[axes.indexOf(axis)] ?? 0)));
  return isInside ? { path, index: places } : null;
}

function isOfSource(path: string, axis: string): boolean {
  return axis === "s" && path.includes(".cross.");
}

/** Whether an edit can be made while a decoder writes, position by position, as clearhead/explorer/answering/edits.py
 *  says it: a mean over the decoder's positions needs all of them, and so does a row of numbers, one for each. */
export function canWait(edit: Edit, axes: string): boolean {
  const { path, index } = parseAddress(edit.at);
  if (path.startsWith("encoder.")) return true;
  const growing = path.includes(".cross.") ? ["t"] : ["t", "s"];
  if (index.some(([axis, i]) => growing.includes(axis) && i < 0)) return false;
  const rest = axes.split(" ").filter((axis) => !index.some(([named]) => named === axis));
  if (edit.do === "mean") return !growing.includes(["t", "s"].find((axis) => rest.includes(axis)) ?? "");
  if (edit.do === "patch") return !rest.some((axis) => growing.includes(axis));
  if (edit.do === "set" && Array.isArray(edit.value)) return !growing.includes(rest.at(-1) ?? "");
  return true;
}

function vector(numbers: readonly number[]): Floats {
  return floats([numbers.length], Float32Array.from(numbers));
}

function lastRow(value: Floats): Floats {
  const n = axisLength(value, 0);
  return n === 1 ? value : floats([1, ...value.shape.slice(1)], row(value, n - 1) as Float32Array);
}

/** h s k and h n k -> h (s + n) k */
function joined(before: Floats | undefined, more: Floats): Floats {
  if (!before) return more;
  const [heads, n, width] = more.shape as [number, number, number], old = axisLength(before, 1) * width, size = old + n * width;
  const out = new Float32Array(heads * size);
  for (let h = 0; h < heads; h++) {
    out.set(before.data.subarray(h * old, (h + 1) * old), h * size);
    out.set(more.data.subarray(h * n * width, (h + 1) * n * width), h * size + old);
  }
  return floats([heads, old / width + n, width], out);
}

function missing(op: Op, name: string): never {
  throw new Error(`${op.out}: needs ${name}, which is not there`);
}
