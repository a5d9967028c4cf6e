/** Which kernel computes an op. */

import type { Op, Plan } from "../../core/protocol";
import { activation, axis, cells, closed, ofRows, pairs, product, softmax, type Axis, type Kernel, type Shape, type Weight } from "./shaders";

/** An op with the shapes of its inputs; `room` is how many rows a head of the second input has, if that is a memory. */
export interface Call { op: Op; x: Shape[]; w: Weight[]; masks: Plan["masks"]; room?: number }

/** Throws for an op that these kernels do not compute as it stands. */
type Make = (call: Call) => Kernel;

const setting = ({ op }: Call, name: string): number => op.by?.[name] ?? fail(op, `no setting "${name}"`);
const cellwise = (body: string): Make => ({ x: [of] }) => cells(of!, ["x0:f32"], `y[i] = ${body};`);
const both = (sign: string): Make => ({ x: [of] }) => cells(of!, ["x0:f32", "x1:f32"], `y[i] = x0[i] ${sign} x1[i];`);

const KERNELS: Readonly<Record<string, Make>> = {
  scale: (call) => cellwise(`x0[i] * ${literal(setting(call, "factor"))}`)(call),
  soft_cap: (call) => ((cap) => cellwise(`${cap} * tanh(clamp(x0[i] / ${cap}, -15.0, 15.0))`)(call))(literal(setting(call, "cap"))),
  clamp: (call) => cellwise(`clamp(x0[i], ${literal(call.op.by?.least ?? -3e38)}, ${literal(setting(call, "most"))})`)(call),
  activation: ({ op, x: [of] }) => activation(of!, op.how ?? ""),
  add: both("+"),
  multiply: both("*"),
  gain: ({ x: [of], w: [w] }) => cells(of!, ["x0:f32", "w0:f32"], `y[i] = x0[i] * w0[i % ${w!.shape[0]}u];`),
  linear: ({ x: [of], w: [w, bias] }) => product(of!, w!, Boolean(bias)),
  project: ({ x: [of], w: [w] }) => product(of!, w!, false, known(of!, 0)),
  sum_heads: ({ x: [of], w: [bias] }) => {
    const [heads, width] = [known(of!, 0), known(of!, 2)];
    return cells(of!.slice(1), bias ? ["x0:f32", "w0:f32"] : ["x0:f32"], `let size = p.n * ${width}u; var sum = ${bias ? `w0[i % ${width}u]` : "0.0"};
  for (var h = 0u; h < ${heads}u; h++) { sum += x0[h * size + i]; }
  y[i] = sum;`);
  },
  split: (call) => {
    const heads = setting(call, "heads"), width = known(call.x[0]!, 1) / heads;
    return cells([heads, "n", width], ["x0:f32"], `let h = i / (p.n * ${width}u); y[i] = x0[((i / ${width}u) % p.n) * ${heads * width}u + h * ${width}u + i % ${width}u];`);
  },
  repeat: (call) => {
    const [heads, n, width] = call.x[0] as [number, Axis, number], times = setting(call, "times");
    if (n !== "n") fail(call.op, "repeats what it does not read");
    return cells([heads * times, n, width], ["x0:f32"], `let each = p.n * ${width}u; y[i] = x0[(i / each / ${times}u) * each + i % each];`);
  },
  /** x1 holds the cosines, then the sines, of a position's angles. */
  rotate: ({ op, x: [of] }) => {
    const n = op.numbers?.length ?? 0, width = known(of!, -1);
    return cells(of!, ["x0:f32", "x1:f32"], `let c = i % ${width}u; let at = ((i / ${width}u) % p.n) * ${2 * n}u + c % ${n}u;
  if (c >= ${2 * n}u) { y[i] = x0[i]; }
  else if (c < ${n}u) { y[i] = x0[i] * x1[at] - x0[i + ${n}u] * x1[at + ${n}u]; }
  else { y[i] = x0[i] * x1[at] + x0[i - ${n}u] * x1[at + ${n}u]; }`);
  },
  matmul_nt: ({ x: [a, b], room }) => pairs(a!, b!, true, room ?? axis(b!, -2)),
  matmul: ({ x: [a, b], room }) => pairs(a!, b!, false, room ?? axis(b!, -2)),
  mask: ({ op, x: [of], masks }) => {
    const { causal, window } = masks[op.how ?? ""] ?? fail(op, `no mask is called "${op.how}"`);
    return closed(of!, causal, window ?? null);
  },
  softmax: ({ op, x: [of], w }) => (w.length ? fail(op, "sinks") : softmax(of!)),
  mean: ({ op, x: [of] }) => ofRows(alongRows(op, of!), null, false),
  rstd: (call) => ofRows(alongRows(call.op, call.x[0]!), setting(call, "eps"), call.x.length > 1),
  norm: ({ op, x: [of, ...more], w }) => {
    const width = known(alongRows(op, of!), -1), centre = more.length > 1 ? `(x0[i] - x1[i / ${width}u])` : "x0[i]";
    const inputs = ["x0:f32", ...more.map((_, i) => `x${i + 1}:f32`), ...w.map((_, i) => `w${i}:f32`)];
    return cells(of!, inputs, `y[i] = ${centre} * x${more.length}[i / ${width}u] * w0[i % ${width}u]${w.length > 1 ? ` + w1[i % ${width}u]` : ""};`);
  },
};

export function hasKernel(op: Op): boolean {
  return Object.hasOwn(KERNELS, op.op);
}

export function kernelOf(call: Call): Kernel {
  const { op, w } = call, isMatrix = op.op === "linear" || op.op === "project";
  if (w.some(({ bits }, i) => bits < 32 && !(isMatrix && i === 0))) fail(op, "rounded weights");
  return KERNELS[op.op]!(call);
}

export function fail(op: Op, why: string): never {
  throw new Error(`${op.out}: ${op.op} not in WGSL: ${why}`);
}

/** A length that no step changes. */
function known(shape: Shape, i: number): number {
  const found = axis(shape, i);
  if (typeof found !== "number") throw new Error(`an axis of ${shape.join(" x ")} grows`);
  return found;
}

function alongRows(op: Op, shape: Shape): Shape {
  return op.how === "columns" ? fail(op, "columns") : shape;
}

/** A number as WGSL reads it. */
function literal(x: number): string {
  return Number.isFinite(x) ? `(${Math.fround(x)})` : fail({ out: String(x) } as Op, "infinite");
}
