/** How one number was made, from what a host stores: for a page to show and a reader to check.
 *
 * First `sources` says what to fetch, then `explained` works on what was fetched. Steps without a tap are made again,
 * number by number, from those with one.
 */

import { formatAddress, parseAddress, type Index } from "../core/address";
import type { Tensor } from "../core/host";
import type { Fact, Op } from "../core/protocol";
import { strides } from "../core/tensor";
import { resultOf, type Explanation } from "./forms";
import { Given, type Cell, type Context, type Need } from "./kind";
import { kindOf, needs } from "./ops";
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
  const values = new Set<string>(), weights = new Set<string>();
  const visit = (need: Need): void => {
    if (stored.numbers.has(need.name)) return;
    const address = fetchAddress(need, stored);
    if (address) (need.kind === "weight" ? weights : values).add(address);
    else remade(need, stored).flatMap((one) => one.needs).forEach(visit);
  };
  needs(cellAt(at, stored)).forEach(visit);
  return { values: [...values], weights: [...weights] };
}

/** How one number was made, from what `sources` asked for: values and weights by the addresses asked with. */
export function explained(at: string, stored: Stored, fetched: ReadonlyMap<string, Tensor>): Explanation {
  const cell = cellAt(at, stored), known = new Map<string, ArrayLike<number>>();
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
    if (!address) return remade(need, stored).map((one) => explain(one.cell, one.given(read)).result);
    const tensor = fetched.get(address);
    if (!tensor) throw new Error(`${address}: expected it with the numbers fetched, got none`);
    // A host says NaN where an edit closed a cell.
    return Array.from(tensor.data, (x) => (Number.isNaN(x) ? -Infinity : x));
  };
  return explain(cell, needs(cell).map(read));
}

/** `numbers[i]` are those of the i-th need. */
function explain(cell: Cell, numbers: readonly ArrayLike<number>[]): Explanation {
  const { op, index } = cell, given = needs(cell).map((need, i) => new Given(need, numbers[i] ?? []));
  const form = kindOf(op).explain(cell, given);
  return { ...form, op: op.op, out: op.out, index: [...index], result: resultOf(form) };
}

/** The numbers of a tensor at an index on each axis, null for all of it. */
function sliced(tensor: Tensor, index: readonly (number | null)[]): ArrayLike<number> {
  const steps = strides(tensor.shape), free = index.findIndex((at) => at === null);
  const start = index.reduce<number>((offset, at, axis) => offset + (at ?? 0) * steps[axis]!, 0);
  const length = free < 0 ? 1 : tensor.shape[free]!, step = free < 0 ? 0 : steps[free]!;
  return Array.from({ length }, (_, i) => tensor.data[start + i * step]!);
}

// --- where a number is -----------------------------------------------------------------------------------------------

function cellAt(at: string, context: Context): Cell {
  const { path, index } = parseAddress(at);
  const op = opOf(path, context), letters = lettersOf(path, index.length);
  const found = letters?.split(" ").map((letter) => index.find(([axis]) => axis === letter)?.[1]);
  const whole = found?.filter((i): i is number => i !== undefined && i >= 0);
  if (!whole || whole.length !== found?.length) throw new Error(`${at}: expected an index on every axis, from 0`);
  return { op, index: whole, context };
}

function opOf(path: string, context: Context): Op {
  const found = context.plan.ops.find((op) => op.out === path);
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
interface Remade {
  cell: Cell;
  needs: Need[];
  given(read: (need: Need) => ArrayLike<number>): ArrayLike<number>[];
}

/** The cells of a part of a value that no host stores. */
function remade(need: Need, stored: Stored): Remade[] {
  const op = opOf(need.name, stored), free = need.index.findIndex((at) => at === null);
  const cell = (i: number): Cell => ({ op, index: need.index.map((at) => at ?? i), context: stored });
  const length = free < 0 ? 1 : lengthOf(need.name, free, stored);
  // A row of what is made cell by cell needs a row, which is asked for at once.
  const rows = free >= 0 && kindOf(op).cellwise ? needs({ ...cell(0), index: need.index as number[] }) : null;
  return Array.from({ length }, (_, i) => {
    if (rows) return { cell: cell(i), needs: rows, given: (read) => rows.map((row) => [read(row)[i]!]) };
    const own = needs(cell(i));
    return { cell: cell(i), needs: own, given: (read) => own.map(read) };
  });
}

/** How long an axis of a value is where all of it is needed, from the values that are stored. */
function lengthOf(path: string, axis: number, stored: Stored): number {
  const shape = stored.facts[path]?.shape ?? stored.numbers.get(path)?.shape;
  if (shape) return shape[axis]!;
  const op = opOf(path, stored), from = (of: number): number => lengthOf(op.inputs?.[0] ?? "", of, stored);
  // Of the linear steps without a tap only those of the head are asked for whole: as wide as what they read.
  return kindOf(op).length?.(op, axis, from, stored) ?? from(axis);
}
