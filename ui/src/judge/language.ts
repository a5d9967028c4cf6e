/** Conditions on the values of a model, as JSON lists: ["<=", ["max", ["abs", …]], 0.01].
 *
 * The twin of lab/clearhead_lab/exercises/language.py: both evaluate the same lists, so that a page and `clearhead lab grade`
 * judge alike. Numbers are float32 values of the model, computed with in float64.
 */

import { size, strides } from "../core/tensor";

/** A number, or a list that begins with the name of an operation. */
export type Term = number | string | readonly Term[];

export interface Values { shape: number[]; data: ArrayLike<number> }

/** Where the numbers come from: runs of the model on each input, with and without the learner's edits. */
export interface Runs {
  /** Names of inputs by the name of their group. */
  groups: Readonly<Record<string, readonly string[]>>;
  /** The value at an address when the model reads the input `on`. */
  value(at: string, on: string, plain: boolean): Values;
  /** The tokens that a stack reads. */
  ids(stack: string, on: string): readonly number[];
  /** The number that the learner gave. */
  answer(): number;
}

/** By which share of the right side <= and >= may be missed. */
const SLACK = 1e-5;
/** How far apart the sides of = may lie if the condition does not say. */
const TOLERANCE = 1e-4;

/** Whether a condition holds for the input `on`. */
export function holds(term: Term, runs: Runs, on: string): boolean {
  const [name, ...rest] = listOf(term), named = (): readonly string[] => runs.groups[String(rest[0])] ?? [String(rest[0])];
  switch (name) {
    case "and":
      return rest.every((one) => holds(one, runs, on));
    case "or":
      return rest.some((one) => holds(one, runs, on));
    case "not":
      return !holds(rest[0]!, runs, on);
    case "every":
      return named().every((one) => holds(rest[1]!, runs, one));
    case "some":
      return named().some((one) => holds(rest[1]!, runs, one));
    default:
      return compared(listOf(term), runs, on).every(Boolean);
  }
}

/** The numbers of a term for the input `on`. */
export function numberOf(term: Term, runs: Runs, on: string): Values {
  if (typeof term === "number") return single(term);
  const [name, ...rest] = listOf(term);
  switch (name) {
    case "value":
    case "plain":
      return runs.value(String(rest[0]), inputOf(rest[1], on), name === "plain");
    case "ids":
      return vector([...runs.ids(String(rest[0]), inputOf(rest[1], on))]);
    case "answer":
      return single(runs.answer());
    case "share": {
      const held = compared(rest, runs, on);
      return single(held.filter(Boolean).length / held.length);
    }
    default: {
      const make = FUNCTIONS[String(name)];
      if (!make) throw new Error(`${String(name)}: no such operation`);
      return make(...rest.map((one) => numberOf(one, runs, on)));
    }
  }
}

function listOf(term: Term): readonly Term[] {
  if (!Array.isArray(term)) throw new Error(`${String(term)}: expected a list`);
  return term as readonly Term[];
}

/** An input by its name, by default the current one; `.swapped` is what goes with the current one by that name. */
function inputOf(given: Term | undefined, on: string): string {
  const name = given === undefined ? on : String(given);
  return name.startsWith(".") ? on + name : name;
}

/** Which numbers of the left side stand in the relation to those of the right side. */
function compared([relation, left, right, by]: readonly Term[], runs: Runs, on: string): boolean[] {
  const a = numberOf(left!, runs, on), b = numberOf(right!, runs, on);
  const slack = (y: number): number => SLACK * Math.max(1, Math.abs(y));
  const tolerance = typeof by === "number" ? by : TOLERANCE;
  const holdsFor: Record<string, (x: number, y: number) => boolean> = {
    "<=": (x, y) => x <= y + slack(y),
    ">=": (x, y) => x >= y - slack(y),
    "=": (x, y) => Math.abs(x - y) <= tolerance,
  };
  const test = holdsFor[String(relation)];
  if (!test) throw new Error(`${String(relation)}: no such relation`);
  const held: boolean[] = [];
  together(a, b, (x, y) => held.push(test(x, y)));
  return held;
}

// --- operations ------------------------------------------------------------------------------------------------------

function single(x: number): Values {
  return { shape: [], data: [x] };
}

function vector(data: number[]): Values {
  return { shape: [data.length], data };
}

/** Pairs of two sides of one shape, or of one side and a single number; the shape of the pairs. */
function together(a: Values, b: Values, visit: (x: number, y: number) => void): number[] {
  const aOne = a.shape.length === 0, bOne = b.shape.length === 0;
  if (!aOne && !bOne && a.shape.join() !== b.shape.join()) throw new Error(`[${a.shape}] and [${b.shape}] do not fit`);
  const { shape } = aOne ? b : a;
  for (let i = 0; i < size(shape); i++) visit(a.data[aOne ? 0 : i]!, b.data[bOne ? 0 : i]!);
  return shape;
}

function both(make: (x: number, y: number) => number): (a: Values, b: Values) => Values {
  return (a, b) => {
    const data: number[] = [], shape = together(a, b, (x, y) => data.push(make(x, y)));
    return { shape, data };
  };
}

function each(make: (x: number) => number): (a: Values) => Values {
  return ({ shape, data }) => ({ shape, data: Array.from(data, make) });
}

function whole(make: (numbers: number[]) => number): (a: Values) => Values {
  return ({ data }) => single(make(Array.from(data)));
}

/** The numbers of the last axis, one row after the other. */
function rowsOf({ shape, data }: Values): number[][] {
  const n = shape.at(-1) ?? 1, numbers = Array.from(data);
  return Array.from({ length: numbers.length / n }, (_, i) => numbers.slice(i * n, (i + 1) * n));
}

function rows(make: (row: number[]) => number): (a: Values) => Values {
  return (a) => ({ shape: a.shape.slice(0, -1), data: rowsOf(a).map(make) });
}

function total(numbers: readonly number[]): number {
  return numbers.reduce((sum, x) => sum + x, 0);
}

function softmax(row: number[]): number[] {
  const most = Math.max(...row), exps = row.map((x) => Math.exp(x - most)), sum = total(exps);
  return exps.map((x) => x / sum);
}

/** The numbers at leading indices, negative ones from the end. */
function at(value: Values, ...index: Values[]): Values {
  let { shape, data } = value;
  for (const one of index) {
    const i = Math.trunc(one.data[0]!), n = shape[0] ?? 0, from = i < 0 ? i + n : i, step = size(shape.slice(1));
    if (from < 0 || from >= n) throw new Error(`${i} is outside 0..${n - 1}`);
    [shape, data] = [shape.slice(1), Array.from(data).slice(from * step, (from + 1) * step)];
  }
  return { shape, data };
}

function sliced(value: Values, start: number, end: number | undefined): Values {
  const n = value.shape[0] ?? 0, step = size(value.shape.slice(1));
  const kept = Array.from({ length: n }, (_, i) => i).slice(start, end);
  const data = kept.flatMap((i) => Array.from(value.data).slice(i * step, (i + 1) * step));
  return { shape: [kept.length, ...value.shape.slice(1)], data };
}

/** The cells of the last two axes that a test of (query, key) takes, in order; the others are left out. */
function cells(value: Values, takes: (query: number, key: number) => boolean): Values {
  const { shape, data } = value, [n, m] = shape.slice(-2) as [number, number], steps = strides([n, m]);
  const kept: number[] = [];
  for (let t = 0; t < n; t++) for (let s = 0; s < m; s++) if (takes(t, s)) kept.push(t * steps[0]! + s);
  const matrices = data.length / (n * m), taken: number[] = [];
  for (let i = 0; i < matrices; i++) for (const place of kept) taken.push(data[i * n * m + place]!);
  return { shape: [...shape.slice(0, -2), kept.length], data: taken };
}

const first = (value: Values): number => Math.trunc(value.data[0]!);

const FUNCTIONS: Record<string, (...values: Values[]) => Values> = {
  "+": (a, b) => both((x, y) => x + y)(a!, b!),
  "-": (a, b) => both((x, y) => x - y)(a!, b!),
  "*": (a, b) => both((x, y) => x * y)(a!, b!),
  "/": (a, b) => both((x, y) => x / y)(a!, b!),
  abs: (a) => each(Math.abs)(a!),
  exp: (a) => each(Math.exp)(a!),
  sqrt: (a) => each(Math.sqrt)(a!),
  log: (a) => each(Math.log)(a!),
  sum: (a) => whole(total)(a!),
  mean: (a) => whole((x) => total(x) / x.length)(a!),
  max: (a) => whole((x) => Math.max(...x))(a!),
  min: (a) => whole((x) => Math.min(...x))(a!),
  count: (a) => single(a!.data.length),
  cosine: (a, b) => {
    const x = Array.from(a!.data), y = Array.from(b!.data), dot = (p: number[], q: number[]): number => total(p.map((one, i) => one * q[i]!));
    const lengths = Math.sqrt(dot(x, x) * dot(y, y));
    return single(lengths > 0 ? dot(x, y) / lengths : 0);
  },
  sums: (a) => rows(total)(a!),
  means: (a) => rows((x) => total(x) / x.length)(a!),
  maxes: (a) => rows((x) => Math.max(...x))(a!),
  lengths: (a) => rows((x) => Math.sqrt(total(x.map((one) => one * one))))(a!),
  argmax: (a) => rows((x) => x.indexOf(Math.max(...x)))(a!),
  softmax: (a) => ({ shape: a!.shape, data: rowsOf(a!).flatMap(softmax) }),
  at: (a, ...index) => at(a!, ...index),
  diagonal: (a, by) => cells(a!, (t, s) => s - t === first(by!)),
  triangle: (a, from) => cells(a!, (t, s) => s - t >= first(from!)),
  drop: (a, n) => sliced(a!, first(n!), undefined),
  keep: (a, n) => sliced(a!, 0, first(n!)),
};
