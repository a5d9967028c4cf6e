/** What a kind of op is: how it computes, which numbers one of its numbers is made of, and how that is explained. */

import type { Tensor } from "../core/host";
import type { Mask, Op, Plan, StackName } from "../core/protocol";
import type { Floats } from "../core/tensor";
import type { Form, Product, Term } from "./forms";

export type Masks = Readonly<Record<string, Mask>>;

/** One record for each kind: a new kind of op is one of these. */
export interface OpKind {
  /** How many values it takes, at least and at most. */
  inputs: readonly [least: number, most: number];
  compute(call: Call): Floats;
  /** The inputs, then the weights, of the number at an index: never a whole matrix, so that a page can fetch them. */
  needs(cell: Cell): Need[];
  /** `given[i]` holds the numbers of the i-th need. */
  explain(cell: Cell, given: Given[]): Form;
  /** Each number is made of the numbers at the same index: a whole axis (null) needs that axis of the inputs. */
  cellwise?: true;
  /** A bias of the scores: a number for each pair of positions, made of the positions alone. */
  pairwise?: true;
  /** How long an axis is where it is not as long as that of the first input, `from(axis)`. */
  length?(op: Op, axis: number, from: (axis: number) => number, context: Context): number;
}

/** An op with its inputs and its weights. */
export interface Call {
  op: Op;
  x: Floats[];
  w: Floats[];
  masks: Masks;
  /** The position of the first query, where earlier ones were computed before. */
  from?: number;
}

/** One number of what an op makes. */
export interface Cell {
  op: Op;
  index: readonly number[];
  context: Context;
}

/** What is at hand without a question: how values come about, and the whole numbers that the stacks read. */
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

/** The numbers of a need, each with its place. */
export class Given {
  constructor(private readonly need: Need, private readonly numbers: ArrayLike<number>) {}

  get length(): number {
    return this.numbers.length;
  }

  term(i = 0): Term {
    const { kind, name, index } = this.need, value = this.numbers[i];
    if (value === undefined) throw new Error(`${name}: expected more than ${this.length} numbers`);
    return { kind, name, index: index.map((at) => at ?? i), value };
  }

  terms(): Term[] {
    return Array.from(this.numbers, (_, i) => this.term(i));
  }
}

export function fail(op: Op, why: string): never {
  throw new Error(`${op.out}: ${why}`);
}

export function weight(call: Call, i: number): Floats {
  return call.w[i] ?? fail(call.op, `${call.op.op} needs ${i + 1} weights`);
}

// --- what a number needs ---------------------------------------------------------------------------------------------

export function ofInput(op: Op, input: number, index: readonly (number | null)[]): Need {
  return { kind: "value", name: op.inputs?.at(input) ?? "", index: [...index] };
}

export function ofWeight(op: Op, i: number, index: (number | null)[]): Need {
  return { kind: "weight", name: op.weights?.[i] ?? "", index };
}

/** A whole vector of parameters, if the op has it. */
export function ofVector(op: Op, i: number): Need[] {
  return op.weights?.[i] ? [ofWeight(op, i, [null])] : [];
}

/** The number at the same index of every input. */
export function same({ op, index }: Cell): Need[] {
  return (op.inputs ?? []).map((_, i) => ofInput(op, i, index));
}

export function lastRow({ op, index }: Cell): Need[] {
  return [ofInput(op, 0, [...index.slice(0, -1), null])];
}

// --- how it is explained ---------------------------------------------------------------------------------------------

export function taken(_: Cell, [of]: Given[]): Form {
  return { form: "taken", of: of!.term(), by: null };
}

/** left . right, from a place in the right on. */
export function products(left: Given, right: Given, from = 0): Product[] {
  return left.terms().map((term, i) => {
    const other = right.term(from + i);
    return { left: term, right: other, product: term.value * other.value };
  });
}

// --- context ---------------------------------------------------------------------------------------------------------

/** The whole number that a stack reads at a position: of the last input of the op. */
export function readAt({ op, context }: Cell, position: number): Term {
  const name = op.inputs?.at(-1) ?? "", value = numbersAt(name, context)[position];
  if (value === undefined) fail(op, `${name} has no position ${position}`);
  return { kind: "number", name, index: [position], value };
}

export function numbersAt(name: string, context: Context): ArrayLike<number> {
  const found = context.numbers.get(name);
  if (!found) throw new Error(`expected ${name} with the context, got none`);
  return found.data;
}

export function stackName(path: string): StackName {
  return path.startsWith("encoder.") ? "encoder" : "decoder";
}

export function stackOf(op: Op, context: Context): NonNullable<Plan["config"]["encoder"]> {
  const { encoder, decoder } = context.plan.config;
  const found = op.out.startsWith("head.") ? decoder ?? encoder : { encoder, decoder }[stackName(op.out)];
  return found ?? fail(op, "the config has no such stack");
}
