/** Any number explained from what a host stores: steps without a tap are made again, by their ops, from those with one.
 *
 * First `sources` says what to fetch, then `explained` works on what was fetched.
 */

import { formatAddress, parseAddress, type Index } from "../core/address";
import type { Fact, Op, Tensor } from "../core/protocol";
import { strides } from "../core/tensor";
import { explain } from "./explain";
import type { Explanation, Term } from "./forms";
import { setting } from "./functions";
import { CELLWISE, headWidth, needs, type Context, type Need } from "./needs";
import { lettersOf } from "./taps";

/** A run whose values lie with a host. */
export interface Stored extends Context {
  facts: Readonly<Record<string, Fact>>;
}

export interface Sources {
  /** Parts of values, to ask for with `values`. */
  values: string[];
  /** Rows of matrices, and vectors, to ask for with `weights`. */
  weights: string[];
}

/** What the explanation of one number needs to be fetched; `at` has an index on every axis. */
export function sources(at: string, stored: Stored): Sources {
  const { op, index } = place(at, stored), values = new Set<string>(), weights = new Set<string>();
  const visit = (need: Need): void => {
    if (stored.numbers.has(need.name)) return;
    const address = fetchAddress(need, stored);
    if (address) (need.kind === "weight" ? weights : values).add(address);
    else made(need, stored).flatMap((cell) => cell.needs).forEach(visit);
  };
  needs(op, index, stored).forEach(visit);
  return { values: [...values], weights: [...weights] };
}

/** How one number was made, from what `sources` asked for: values and weights by the addresses asked with. */
export function explained(at: string, stored: Stored, fetched: ReadonlyMap<string, Tensor>): Explanation {
  const { op, index } = place(at, stored), known = new Map<string, ArrayLike<number>>();
  const read = (need: Need): ArrayLike<number> => {
    const key = `${need.name}[${need.index}]`;
    let numbers = known.get(key);
    if (!numbers) known.set(key, (numbers = numbersOf(need)));
    return numbers;
  };
  const numbersOf = (need: Need): ArrayLike<number> => {
    const here = stored.numbers.get(need.name);
    if (here) return sliced(here, need.index);
    const address = fetchAddress(need, stored);
    if (!address) {
      return made(need, stored).map((cell) => explain(cell.op, cell.index, cell.given(read), stored).result);
    }
    const tensor = fetched.get(address);
    if (!tensor) throw new Error(`${address}: expected it with the numbers fetched, got none`);
    // A host says NaN where an edit closed a cell.
    return Array.from(tensor.data, (x) => (Number.isNaN(x) ? -Infinity : x));
  };
  return explain(op, index, needs(op, index, stored).map(read), stored);
}

/** The same from whole tensors, such as those of a run in the page. */
export function explainedHere(
  at: string, context: Context, values: ReadonlyMap<string, Tensor>, weights: ReadonlyMap<string, Tensor>,
): Explanation {
  const { op, index } = place(at, { ...context, facts: {} });
  const given = needs(op, index, context).map((need) => {
    const tensor = (need.kind === "weight" ? weights : values).get(need.name) ?? context.numbers.get(need.name);
    if (!tensor) throw new Error(`${op.out}: needs ${need.name}, which is not there`);
    return sliced(tensor, need.index);
  });
  return explain(op, index, given, context);
}

/** The numbers of a tensor at an index on each axis, null for all of it. */
export function sliced(tensor: Tensor, index: readonly (number | null)[]): ArrayLike<number> {
  const steps = strides(tensor.shape), free = index.findIndex((at) => at === null);
  const start = index.reduce<number>((offset, at, axis) => offset + (at ?? 0) * steps[axis]!, 0);
  const length = free < 0 ? 1 : tensor.shape[free]!, step = free < 0 ? 0 : steps[free]!;
  return Array.from({ length }, (_, i) => tensor.data[start + i * step]!);
}

/** The written address of a term: `….q[h=0,t=3,k=7]`, `….q.weight[i=7,j=2]`, `encoder.ids[t=3]`. */
export function termAddress({ kind, name, index }: Term): string {
  const letters = kind === "value" ? lettersOf(name, index.length) : kind === "weight" ? "i j" : "t";
  const parts = letters?.split(" ") ?? [];
  return formatAddress({ path: name, index: index.map((at, axis): Index => [parts[axis] ?? "i", at]) });
}

// --- where a number is -----------------------------------------------------------------------------------------------

function place(at: string, stored: Stored): { op: Op; index: number[] } {
  const { path, index } = parseAddress(at);
  const op = opOf(path, stored), letters = lettersOf(path, index.length);
  const found = letters?.split(" ").map((letter) => index.find(([axis]) => axis === letter)?.[1]);
  const whole = found?.filter((i): i is number => i !== undefined && i >= 0);
  if (!whole || whole.length !== found?.length) throw new Error(`${at}: expected an index on every axis, from 0`);
  return { op, index: whole };
}

function opOf(path: string, stored: Stored): Op {
  const found = stored.plan.ops.find((op) => op.out === path);
  if (!found) throw new Error(`${path}: expected an address of this model, got another`);
  return found;
}

/** How to ask for a need; null for a value that no host stores. */
function fetchAddress({ kind, name, index }: Need, stored: Stored): string | null {
  if (kind === "weight") return index[0] === null ? name : formatAddress({ path: name, index: [["i", index[0]!]] });
  const letters = stored.facts[name]?.axes.split(" ");
  if (!letters) return null;
  const parts = letters.map((letter, axis): [string, number | null] => [letter, index[axis] ?? null]);
  return formatAddress({ path: name, index: parts.filter((part): part is Index => part[1] !== null) });
}

// --- what is not stored ----------------------------------------------------------------------------------------------

/** A number to be made, and what of. */
interface Cell {
  op: Op;
  index: number[];
  needs: Need[];
  given(read: (need: Need) => ArrayLike<number>): ArrayLike<number>[];
}

/** The cells of a part of a value that no host stores. */
function made(need: Need, stored: Stored): Cell[] {
  const op = opOf(need.name, stored), free = need.index.findIndex((at) => at === null);
  const length = free < 0 ? 1 : lengthOf(need.name, free, stored);
  // A row of what is made cell by cell needs a row, which is asked for at once.
  const rows = free >= 0 && CELLWISE.has(op.op) ? needs(op, need.index, stored) : null;
  return Array.from({ length }, (_, i) => {
    const index = need.index.map((at) => at ?? i);
    if (rows) return { op, index, needs: rows, given: (read) => rows.map((row) => [read(row)[i]!]) };
    const own = needs(op, index, stored);
    return { op, index, needs: own, given: (read) => own.map(read) };
  });
}

/** How long an axis of a value is where all of it is needed, from the values that are stored. */
function lengthOf(path: string, axis: number, stored: Stored): number {
  const shape = stored.facts[path]?.shape ?? stored.numbers.get(path)?.shape;
  if (shape) return shape[axis]!;
  const op = opOf(path, stored), from = (of: number): number => lengthOf(op.inputs?.[0] ?? "", of, stored);
  switch (op.op) {
    case "split":
      return axis === 0 ? setting(op, "heads") : axis === 1 ? from(0) : headWidth(op, stored);
    case "repeat":
      return axis === 0 ? from(0) * setting(op, "times") : from(axis);
    case "unfold":
      return from(0) * setting(op, "size") ** 2;
    case "pool":
      return from(1);
    default:
      // Whatever else has no tap is as long as its input: of the linear steps only those of the head, d to d.
      return from(axis);
  }
}
