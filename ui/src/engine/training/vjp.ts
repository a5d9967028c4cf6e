/** The derivative of every kind of op that a small network of words has. The gradient of what an op made is added, by its Jacobian,
 *  to those of its inputs and of its weights: vector times Jacobian. */

import type { Op } from "../../core/protocol";
import { axisLength, type Floats } from "../../core/tensor";
import { activation, setting, softCap } from "../functions";
import { fail } from "../kind";
import { turnPairs } from "../kinds/positions";
import { dotRows, rows, transposed } from "../products";

/** What an op computed and with what, the gradient `g` of that, and where those of its inputs and weights are summed. */
export interface Step {
  op: Op;
  x: Floats[];
  w: Floats[];
  y: Floats;
  g: Float32Array;
  /** None for whole numbers, such as ids. */
  dx: (Float32Array | null)[];
  dw: Float32Array[];
}

export type Vjp = (step: Step) => void;

export const VJPS: Record<string, Vjp> = {
  lookup: ({ op, x: [ids], w: [table], g, dw: [d] }) => {
    const width = axisLength(table!, 1), offset = setting(op, "offset", 0);
    for (let i = 0; i < ids!.data.length; i++) {
      const to = (ids!.data[i]! + offset) * width;
      for (let k = 0; k < width; k++) d![to + k]! += g[i * width + k]!;
    }
  },
  sinusoid: () => undefined,
  copy: ({ g, dx: [d] }) => add(d!, g),
  scale: ({ op, g, dx: [d] }) => add(d!, g, setting(op, "factor")),
  soft_cap: ({ op, x: [x], g, dx: [d] }) => {
    const cap = setting(op, "cap");
    for (let i = 0; i < g.length; i++) d![i]! += g[i]! * (1 - (softCap(x!.data[i]!, cap) / cap) ** 2);
  },
  activation: ({ op, x: [x], y, g, dx: [d] }) => {
    const slope = slopeOf(op);
    for (let i = 0; i < g.length; i++) d![i]! += g[i]! * slope(x!.data[i]!, y.data[i]!);
  },
  add: ({ g, dx }) => dx.forEach((d) => add(d!, g)),
  multiply: ({ x: [a, b], g, dx: [da, db] }) => {
    for (let i = 0; i < g.length; i++) {
      da![i]! += g[i]! * b!.data[i]!;
      db![i]! += g[i]! * a!.data[i]!;
    }
  },
  linear: ({ x: [x], w: [w], g, dx: [d], dw: [dw, db] }) => {
    const width = axisLength(w!, 1), n = x!.data.length / width;
    throughMatrix({ x: x!.data, w: w!, g, d: d!, dw: dw!, n, from: 0, width });
    if (db) addRows(db, g);
  },
  /** h t k -> h t d: each head through its columns. */
  project: ({ x: [z], w: [w], g, dx: [d], dw: [dw] }) => {
    const [heads, n, width] = z!.shape as [number, number, number], m = axisLength(w!, 0);
    for (let h = 0; h < heads; h++) {
      const of = (data: Float32Array, each: number): Float32Array => data.subarray(h * n * each, (h + 1) * n * each);
      throughMatrix({ x: of(z!.data, width), w: w!, g: of(g, m), d: of(d!, width), dw: dw!, n, from: h * width, width });
    }
  },
  sum_heads: ({ x: [x], g, dx: [d], dw: [db] }) => {
    for (let h = 0; h < x!.shape[0]!; h++) add(d!.subarray(h * g.length, (h + 1) * g.length), g);
    if (db) addRows(db, g);
  },
  mean: ({ x: [x], g, dx: [d] }) => {
    const n = axisLength(x!, -1);
    for (let i = 0; i < d!.length; i++) d![i]! += g[Math.floor(i / n)]! / n;
  },
  /** r = (mean of (x - c)² + eps)^-½ */
  rstd: ({ x: [x, mean], y, g, dx: [d, dc] }) => {
    const n = axisLength(x!, -1);
    for (let i = 0; i < d!.length; i++) {
      const row = Math.floor(i / n), moved = (g[row]! * -(y.data[row]! ** 3) * (x!.data[i]! - (mean?.data[row] ?? 0))) / n;
      d![i]! += moved;
      if (dc) dc[row]! -= moved;
    }
  },
  /** y = (x - c) r gain + shift */
  norm: ({ x, w: [gain], g, dx, dw: [dGain, dShift] }) => {
    const n = axisLength(x[0]!, -1), factor = x.at(-1)!.data, centre = x.length > 2 ? x[1]!.data : null;
    const [d, dr] = [dx[0]!, dx.at(-1)!], dc = x.length > 2 ? dx[1]! : null;
    for (let i = 0; i < g.length; i++) {
      const row = Math.floor(i / n), k = i % n, centred = x[0]!.data[i]! - (centre ? centre[row]! : 0), scaled = g[i]! * gain!.data[k]!;
      d[i]! += scaled * factor[row]!;
      if (dc) dc[row]! -= scaled * factor[row]!;
      dr[row]! += scaled * centred;
      dGain![k]! += g[i]! * centred * factor[row]!;
      if (dShift) dShift[k]! += g[i]!;
    }
  },
  split: ({ y, g, dx: [d] }) => {
    const [heads, n, width] = y.shape as [number, number, number];
    for (let i = 0; i < g.length; i++) {
      const h = Math.floor(i / (n * width)), t = Math.floor(i / width) % n;
      d![(t * heads + h) * width + (i % width)]! += g[i]!;
    }
  },
  repeat: ({ op, g, x: [x], dx: [d] }) => {
    const each = x!.data.length / x!.shape[0]!, times = setting(op, "times");
    for (let i = 0; i < g.length; i++) d![Math.floor(i / each / times) * each + (i % each)]! += g[i]!;
  },
  /** … t k times … s k turned */
  matmul_nt: ({ x: [a, b], g, dx: [da, db] }) => {
    const width = axisLength(a!, -1), n = axisLength(a!, -2), m = axisLength(b!, -2);
    for (let at = 0; at < g.length; at++) {
      const row = Math.floor(at / m), i = row * width, j = (Math.floor(row / n) * m + (at % m)) * width;
      for (let k = 0; g[at] !== 0 && k < width; k++) {
        da![i + k]! += g[at]! * b!.data[j + k]!;
        db![j + k]! += g[at]! * a!.data[i + k]!;
      }
    }
  },
  /** … t s times … s k */
  matmul: ({ x: [a, b], g, dx: [da, db] }) => {
    const width = axisLength(b!, -1), m = axisLength(b!, -2), n = axisLength(a!, -2);
    for (let at = 0; at < da!.length; at++) {
      const row = Math.floor(at / m), i = row * width, j = (Math.floor(row / n) * m + (at % m)) * width, share = a!.data[at]!;
      if (share === 0) continue; // A closed cell.
      let sum = 0;
      for (let k = 0; k < width; k++) {
        sum += g[i + k]! * b!.data[j + k]!;
        db![j + k]! += share * g[i + k]!;
      }
      da![at]! += sum;
    }
  },
  /** A closed cell has a share of 0, and so a gradient of 0. */
  mask: ({ g, dx: [d] }) => add(d!, g),
  softmax: ({ y, g, dx: [d], w }) => {
    if (w.length) throw new Error("softmax: sinks are not trained here");
    const n = axisLength(y, -1);
    for (let at = 0; at < g.length; at += n) {
      let sum = 0;
      for (let j = at; j < at + n; j++) sum += g[j]! * y.data[j]!;
      for (let j = at; j < at + n; j++) d![j]! += y.data[j]! * (g[j]! - sum);
    }
  },
  /** Turned back. */
  rotate: ({ op, x: [x, where], g, dx: [d] }) => {
    const width = axisLength(x!, -1), angles = op.numbers ?? [], n = angles.length, positions = where!.data, turned = new Float32Array(width);
    for (let at = 0, i = 0; at < g.length; at += width, i++) {
      const row = g.subarray(at, at + width), position = positions[i % positions.length]!;
      turned.set(row);
      turnPairs(row, turned, 0, n, (pair) => -Math.fround(position * Math.fround(angles[pair]!)), setting(op, "magnitude"));
      for (let k = 0; k < width; k++) d![at + k]! += turned[k]!;
    }
  },
};

export function vjpOf(op: Op): Vjp {
  return (Object.hasOwn(VJPS, op.op) ? VJPS[op.op] : undefined) ?? fail(op, `"${op.op}" has no derivative here`);
}

function add(to: Float32Array, g: Float32Array, factor = 1): void {
  for (let i = 0; i < g.length; i++) to[i]! += factor * g[i]!;
}

/** The sum of rows as long as `to`. */
function addRows(to: Float32Array, g: Float32Array): void {
  for (let i = 0; i < g.length; i++) to[i % to.length]! += g[i]!;
}

interface Through { x: Float32Array; w: Floats; g: Float32Array; d: Float32Array; dw: Float32Array; n: number; from: number; width: number }

/** Of n rows x W[:, from : from + width]^T: d += g W and dW += g^T x. */
function throughMatrix({ x, w, g, d, dw, n, from, width }: Through): void {
  const [m, whole] = w.shape as [number, number], part = new Float32Array(Math.max(n, m) * width);
  const columns = transposed(w.data, 0, m, whole).subarray(from * m, (from + width) * m);
  dotRows(rows(part, width), rows(g, m), rows(columns, m), n, width, m);
  add(d, part.subarray(0, n * width));
  dotRows(rows(part, width), rows(transposed(g, 0, n, m), n), rows(transposed(x, 0, n, width), n), m, width, n);
  for (let j = 0; j < m; j++) for (let k = 0; k < width; k++) dw[j * whole + from + k]! += part[j * width + k]!;
}

/** The slope of an activation at x, where it is y. */
function slopeOf(op: Op): (x: number, y: number) => number {
  const gate = activation("sigmoid");
  const gated = (inner: (x: number) => [u: number, du: number]) => (x: number): number => {
    const [u, du] = inner(x), share = gate(u);
    return share + x * share * (1 - share) * du;
  };
  switch (op.how) {
    case "relu": return (x) => (x > 0 ? 1 : 0);
    case "silu": return gated((x) => [x, 1]);
    case "quick_gelu": return gated((x) => [1.702 * x, 1.702]);
    case "gelu_tanh": {
      const c = 2 * Math.sqrt(2 / Math.PI);
      return gated((x) => [c * (x + 0.044715 * x ** 3), c * (1 + 3 * 0.044715 * x * x)]);
    }
    case "gelu": return (x, y) => (x === 0 ? 0.5 : y / x) + (x * Math.exp(-0.5 * x * x)) / Math.sqrt(2 * Math.PI);
    default: return fail(op, `the activation "${op.how}" has no derivative here`);
  }
}
