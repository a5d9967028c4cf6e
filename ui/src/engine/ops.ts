/** One step of a network: out = op(inputs, weights), as clearhead/explorer/ops.py lists them for any architecture.
 *
 * The twin of clearhead/explorer/recompute.py. Numbers are kept in float32 and summed in float64.
 */

import type { Op, Tensor } from "../core/protocol";
import { axisLength, floats, row, toFloats, type Floats } from "../core/tensor";
import { activation, bucket, isOpen, maskOf, setting, softCap, turn, wave } from "./functions";
import { linear, matmul, project, repeat, split, sumHeads } from "./matrices";
import { transposed } from "./products";
import { fail, weight, type Masks, type Step } from "./step";

export const KINDS = [
  "lookup", "unfold", "prepend", "sinusoid", "copy", "add", "scale", "soft_cap", "multiply", "activation",
  "linear", "split", "repeat", "mean", "rstd", "norm", "rotate", "relative_bias", "alibi", "matmul_nt", "matmul",
  "mask", "softmax", "project", "sum_heads", "pool",
] as const;

export type Kind = (typeof KINDS)[number];
export type { Masks };

/** The result of an op. Throws a one-line Error for what does not fit it. */
export function compute(op: Op, inputs: readonly Tensor[], weights: readonly Tensor[], masks: Masks): Floats {
  const kind = kindOf(op), [least, most] = COUNTS[kind] ?? [1, 1];
  if (inputs.length < least || inputs.length > most) fail(op, `${op.op} takes ${least} to ${most} values`);
  return COMPUTE[kind]({ op, x: inputs.map(toFloats), w: weights.map(toFloats), masks });
}

export function kindOf(op: Op): Kind {
  return KINDS.find((kind) => kind === op.op) ?? fail(op, `no op is called "${op.op}"`);
}

/** How many inputs an op takes, where not one. */
const COUNTS: Partial<Record<Kind, [least: number, most: number]>> = {
  add: [2, 2], multiply: [2, 2], rstd: [1, 2], norm: [2, 3], rotate: [2, 2], matmul_nt: [2, 2], matmul: [2, 2],
};

const COMPUTE: Record<Kind, (s: Step) => Floats> = {
  lookup,
  unfold,
  prepend: (s) => floats([axisLength(s.x[0]!, 0) + 1, axisLength(s.x[0]!, 1)], joined(weight(s, 0).data, s.x[0]!.data)),
  sinusoid,
  copy: (s) => s.x[0]!,
  add: (s) => both(s, (a, b) => a + b),
  scale: (s) => scaled(s.x[0]!, setting(s.op, "factor")),
  soft_cap: (s) => each(s, ((cap) => (x: number) => softCap(x, cap))(setting(s.op, "cap"))),
  multiply: (s) => both(s, (a, b) => a * b),
  activation: (s) => each(s, activation(s.op.how ?? "")),
  linear,
  split,
  repeat,
  mean: (s) => eachRow(s, 1, (x, out, i) => (out[i] = average(x))),
  rstd,
  norm,
  rotate,
  relative_bias: relativeBias,
  alibi,
  matmul_nt: (s) => matmul(s, true),
  matmul: (s) => matmul(s, false),
  mask,
  softmax,
  project,
  sum_heads: sumHeads,
  pool,
};

// --- what a stack reads ----------------------------------------------------------------------------------------------

function lookup(s: Step): Floats {
  const table = weight(s, 0), n = axisLength(table, 0), width = axisLength(table, 1);
  const offset = setting(s.op, "offset", 0);
  const out = floats([s.x[0]!.data.length, width]);
  s.x[0]!.data.forEach((id, i) => {
    if (!(id + offset >= 0 && id + offset < n)) fail(s.op, `row ${id + offset} is outside 0..${n - 1}`);
    out.data.set(row(table, id + offset), i * width);
  });
  return out;
}

/** c y x -> t (c y x): the pixels of each patch in a row. */
function unfold(s: Step): Floats {
  const n = setting(s.op, "size"), [channels, height, width] = s.x[0]!.shape as [number, number, number];
  const out = floats([(height / n) * (width / n), channels * n * n]);
  let at = 0;
  for (let top = 0; top < height; top += n) {
    for (let left = 0; left < width; left += n) {
      for (let c = 0; c < channels; c++) {
        for (let y = top; y < top + n; y++, at += n) out.data.set(row(s.x[0]!, c, y).subarray(left, left + n), at);
      }
    }
  }
  return out;
}

function sinusoid(s: Step): Floats {
  const width = setting(s.op, "width"), waves = Array.from({ length: width }, (_, i) => wave(s.op, i));
  const out = floats([s.x[0]!.data.length, width]);
  s.x[0]!.data.forEach((position, t) => {
    waves.forEach(({ kind, frequency }, i) => (out.data[t * width + i] = Math[kind](position * frequency)));
  });
  return out;
}

// --- number by number ------------------------------------------------------------------------------------------------

function each(s: Step, f: (x: number) => number): Floats {
  return floats(s.x[0]!.shape, s.x[0]!.data.map(f));
}

function scaled({ shape, data }: Floats, factor: number): Floats {
  const out = floats(shape);
  for (let i = 0; i < data.length; i++) out.data[i] = data[i]! * factor;
  return out;
}

function both(s: Step, f: (a: number, b: number) => number): Floats {
  const [a, b] = s.x as [Floats, Floats];
  if (a.data.length !== b.data.length) fail(s.op, `shapes [${a.shape}] and [${b.shape}] differ`);
  const out = floats(a.shape);
  for (let i = 0; i < out.data.length; i++) out.data[i] = f(a.data[i]!, b.data[i]!);
  return out;
}

function mask(s: Step): Floats {
  const { shape, data } = s.x[0]!, n = axisLength(s.x[0]!, -2), m = axisLength(s.x[0]!, -1);
  const rule = maskOf(s.op, s.masks);
  return floats(shape, data.map((x, i) => (isOpen(rule, Math.floor(i / m) % n, i % m) ? x : -Infinity)));
}

// --- row by row ------------------------------------------------------------------------------------------------------

/** Puts the result of row i of the input, x, at a place in the output. */
type MakeRow = (x: Float32Array, out: Float32Array, at: number, i: number) => void;

/** Row by row, to rows of another width. */
function eachRow(s: Step, width: number, make: MakeRow): Floats {
  const { shape, data } = s.x[0]!, n = axisLength(s.x[0]!, -1), out = floats([...shape.slice(0, -1), width]);
  for (let i = 0; i * n < data.length; i++) make(data.subarray(i * n, (i + 1) * n), out.data, i * width, i);
  return out;
}

function average(x: Float32Array): number {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += x[i]!;
  return sum / x.length;
}

function rstd(s: Step): Floats {
  const eps = setting(s.op, "eps"), mean = s.x[1]?.data;
  return eachRow(s, 1, (x, out, i) => {
    const centre = mean ? mean[i]! : 0;
    let sum = 0;
    for (let j = 0; j < x.length; j++) sum += (x[j]! - centre) ** 2;
    out[i] = 1 / Math.sqrt(sum / x.length + eps);
  });
}

function norm(s: Step): Floats {
  const mean = s.x.length > 2 ? s.x[1]!.data : null, factor = s.x.at(-1)!.data;
  const gain = weight(s, 0).data, shift = s.w[1]?.data;
  return eachRow(s, gain.length, (x, out, at, i) => {
    const centre = mean ? mean[i]! : 0;
    for (let j = 0; j < x.length; j++) out[at + j] = (x[j]! - centre) * factor[i]! * gain[j]! + (shift ? shift[j]! : 0);
  });
}

function softmax(s: Step): Floats {
  return eachRow(s, axisLength(s.x[0]!, -1), (x, out, at) => {
    let most = -Infinity, sum = 0;
    for (let j = 0; j < x.length; j++) most = Math.max(most, x[j]!);
    if (most === -Infinity) fail(s.op, "every cell of a row is closed; leave one open");
    for (let j = 0; j < x.length; j++) sum += Math.exp(x[j]! - most);
    for (let j = 0; j < x.length; j++) out[at + j] = Math.exp(x[j]! - most) / sum;
  });
}

/** … t k, turned by the angle of each position; component i goes with component i + n. */
function rotate(s: Step): Floats {
  const n = s.op.numbers?.length ?? 0, by = setting(s.op, "magnitude"), positions = s.x[1]!.data;
  return eachRow(s, axisLength(s.x[0]!, -1), (x, out, at, i) => {
    const position = positions[i % positions.length]!;
    out.set(x.subarray(2 * n), at + 2 * n);
    for (let j = 0; j < n; j++) {
      const angle = turn(s.op, position, j), cos = Math.cos(angle) * by, sin = Math.sin(angle) * by;
      out[at + j] = x[j]! * cos - x[j + n]! * sin;
      out[at + j + n] = x[j + n]! * cos + x[j]! * sin;
    }
  });
}

// --- what positions add to scores ------------------------------------------------------------------------------------

function biases(s: Step, heads: number, bias: (head: number, distance: number) => number): Floats {
  const positions = s.x[0]!.data, n = positions.length, out = floats([heads, n, n]);
  for (let h = 0, at = 0; h < heads; h++) {
    for (const query of positions) for (const key of positions) out.data[at++] = bias(h, key - query);
  }
  return out;
}

function relativeBias(s: Step): Floats {
  const table = weight(s, 0), heads = axisLength(table, 1);
  return biases(s, heads, (head, distance) => table.data[bucket(s.op, distance) * heads + head]!);
}

function alibi(s: Step): Floats {
  const slopes = s.op.numbers ?? [];
  return biases(s, slopes.length, (head, distance) => -slopes[head]! * Math.abs(distance));
}

/** t d -> d */
function pool(s: Step): Floats {
  const [n, d] = s.x[0]!.shape as [number, number];
  if (s.op.how === "first") return floats([d], s.x[0]!.data.slice(0, d));
  if (s.op.how === "last") return floats([d], s.x[0]!.data.slice((n - 1) * d));
  if (s.op.how !== "mean") fail(s.op, `states are not pooled by "${s.op.how}"`);
  const columns = transposed(s.x[0]!.data, 0, n, d);
  return floats([d], Float32Array.from({ length: d }, (_, i) => average(columns.subarray(i * n, (i + 1) * n))));
}

// ---------------------------------------------------------------------------------------------------------------------

function joined(a: Float32Array, b: Float32Array): Float32Array {
  const out = new Float32Array(a.length + b.length);
  out.set(a);
  out.set(b, a.length);
  return out;
}
