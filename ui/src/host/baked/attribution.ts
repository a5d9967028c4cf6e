/** How much of one logit each part of the network wrote, as clearhead/analysis/attribution.py says it. */

import type { Asked, AttributionReply, Op, Tensor } from "../../core/protocol";
import { axisLength, floats, row, type Floats } from "../../core/tensor";
import type { Pass } from "../../engine/forward";
import { setting } from "../../engine/functions";
import { average } from "../../engine/kinds/norms";
import { compute } from "../../engine/ops";

/** A part by its address, or by its parameter if it is a bias, and what it adds to the states that the head reads (t d). */
type Part = readonly [name: string, added: Floats];

/** What is not split further. */
const WRITES = /\.(embed\.(tokens|positions|types)|ffn\.out)$/;
const BENDS = "attribution: expected a linear head, got one with a layer, a pooler or a cap of its own";

/** logit = Σ part · W[logit] + bias, the norms on the way with the scale that they had   (Elhage et al. 2021) */
export function attribution(pass: Pass, { position, logit, minus }: Omit<Asked<"attribution">, "run">): AttributionReply {
  const { output, pool, states, factor } = headOf(pass);
  const [matrix, bias] = (output.weights ?? []).map((name) => pass.weights.get(name)!);
  const n = axisLength(matrix!, 0);
  for (const label of [logit, minus]) {
    if (label !== undefined && !(label >= 0 && label < n)) throw new Error(`logit ${label}: expected a number below ${n}`);
  }
  const of = (values: Tensor): Float64Array => {
    const [own, other] = [row(values, logit), minus === undefined ? null : row(values, minus)];
    return Float64Array.from(own, (x, i) => x - (other ? other[i]! : 0));
  };
  const direction = of(matrix!).map((x) => x * factor);
  const pick = (added: Floats): ArrayLike<number> => pool ? compute(pool, [added], [], pass.plan.masks).data : row(added, position);
  const shares: Record<string, number> = {};
  for (const [name, added] of parts(pass, states)) shares[name] = dot(pick(added), direction);
  if (bias) shares["head.output.bias"] = of(bias)[0]!;
  const logits = pass.values.get("head.logits")!;
  const said = pool ? logits.data : row(logits, position);
  return { shares, logit: of({ shape: [n], data: said })[0]! };
}

/** The head's product, what it pools by, the states that it reads, and the factor of the logits. */
function headOf(pass: Pass): { output: Op; pool: Op | null; states: string; factor: number } {
  let op = opOf(pass, "head.logits"), factor = 1;
  while (op?.op === "scale" || op?.op === "copy") {
    factor *= op.op === "scale" ? setting(op, "factor") : 1;
    op = opOf(pass, op.inputs![0]!);
  }
  if (op?.op !== "linear") throw new Error(BENDS);
  const before = opOf(pass, op.inputs![0]!), pool = before?.op === "pool" ? before : null;
  return { output: op, pool, states: (pool ?? op).inputs![0]!, factor };
}

/** The summands of a value of the residual stream. */
function* parts(pass: Pass, path: string): Generator<Part> {
  const op = opOf(pass, path), value = pass.values.get(path)!;
  if (!op || WRITES.test(path)) return yield [path, value];
  switch (op.op) {
    case "add":
      for (const input of op.inputs!) yield* parts(pass, input);
      return;
    case "copy":
      return yield* parts(pass, op.inputs![0]!);
    case "scale":
      for (const [name, added] of parts(pass, op.inputs![0]!)) yield [name, mapped(added, (x) => x * setting(op, "factor"))];
      return;
    case "sum_heads":
      return yield* headsOf(pass, op, value);
    case "norm":
      return yield* normed(pass, op, value);
    default:
      if (path.startsWith("head.")) throw new Error(BENDS);
      yield [path, value];
  }
}

function* headsOf(pass: Pass, { inputs, weights }: Op, value: Floats): Generator<Part> {
  const heads = pass.values.get(inputs![0]!)!;
  for (let h = 0; h < axisLength(heads, 0); h++) yield [`${inputs![0]!}[h=${h}]`, floats(value.shape, row(heads, h) as Float32Array)];
  if (weights?.[0]) yield [weights[0], repeated(pass, weights[0], value)];
}

/** (part - mean(part)) * rstd * gain, rstd of the whole as it was; and the norm's bias. */
function* normed(pass: Pass, { inputs, weights }: Op, value: Floats): Generator<Part> {
  const rstd = pass.values.get(inputs!.at(-1)!)!.data, gain = pass.weights.get(weights![0]!)!.data, d = gain.length;
  const centred = inputs!.length === 3;
  for (const [name, added] of parts(pass, inputs![0]!)) {
    const out = floats(added.shape);
    for (let t = 0; t * d < out.data.length; t++) {
      const x = added.data.subarray(t * d, (t + 1) * d), mean = centred ? average(x) : 0;
      for (let i = 0; i < d; i++) out.data[t * d + i] = (x[i]! - mean) * rstd[t]! * gain[i]!;
    }
    yield [name, out];
  }
  if (weights?.[1]) yield [weights[1], repeated(pass, weights[1], value)];
}

function repeated(pass: Pass, name: string, { shape }: Floats): Floats {
  const bias = pass.weights.get(name)!.data;
  return floats(shape, Float32Array.from({ length: shape[0]! * bias.length }, (_, i) => bias[i % bias.length]!));
}

function mapped({ shape, data }: Floats, f: (x: number) => number): Floats {
  return floats(shape, data.map(f));
}

function dot(a: ArrayLike<number>, b: Float64Array): number {
  return b.reduce((sum, x, i) => sum + x * a[i]!, 0);
}

function opOf(pass: Pass, path: string): Op | undefined {
  return pass.plan.ops.find((op) => op.out === path);
}
