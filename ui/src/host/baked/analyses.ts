/** Measurements of a pass of the engine, as clearhead/analysis/{ablation,lens,geometry}.py make them. */

import type { Tensor } from "../../core/host";
import type { Op, StackName } from "../../core/protocol";
import { cosine, dot } from "../../core/vectors";
import { floats, row, type Floats } from "../../core/tensor";
import { logSumExp, topIndices } from "../../core/top";
import { compute } from "../../engine/ops";
import { rerun, type Options, type Pass } from "../../engine/forward";
import { likeliest } from "./glance";

const SITE = /^(encoder|decoder)\.blocks\.\d+\.(?:(?:attn|cross)\.z\[h=-?\d+\]|ffn\.post\[f=-?\d+\])$/;

// --- effects ---------------------------------------------------------------------------------------------------------

/** KL(whole || without that part), in nats: at one position, or the mean over all. How much the logit of a head that pools
 *  falls; of a model without logits 1 - cosine. */
export function effect(whole: Pass, site: string, position: number | undefined, options: Options, logit?: number): number {
  if (!SITE.test(site)) throw new Error(`${site}: expected a head or neuron, such as decoder.blocks.0.attn.z[h=2] or ….ffn.post[f=7]`);
  const without = rerun(whole, [...whole.edits, { at: site, do: "zero" }], options);
  if (logit !== undefined) return [whole, without].map((pass) => pass.values.get("head.logits")!.data[logit]!).reduce((a, b) => a - b);
  const [own, other] = [whole, without].map((pass) => pass.values.get("head.unit")?.data);
  if (own && other) return 1 - dot(own, other);
  const [expected, actual] = [whole, without].map((pass) => distributions(pass.values.get("head.logits"), pass.plan.config.head.kind, position)) as [Float64Array[], Float64Array[]];
  const each = expected.map((logs, i) => divergence(logs, actual[i]!));
  return Math.max(0, each.reduce((sum, x) => sum + x, 0) / each.length);
}

/** Log probabilities, one row for each distribution. */
export function distributions(logits: Tensor | undefined, kind: string, position?: number): Float64Array[] {
  if (!logits) throw new Error("effects: expected a network with a head, got one that ends in its states");
  const n = logits.shape[0] ?? 0, width = logits.shape[1] ?? 1;
  if (kind === "classification") return [logs(logits.data)];
  if (kind === "span") return [0, 1].map((end) => logs(Float32Array.from({ length: n }, (_, i) => logits.data[i * width + end]!)));
  if (position !== undefined && (position < -n || position >= n)) {
    throw new Error(`position ${position}: expected a real position of the last stack, whose length is ${n}`);
  }
  const rows = position === undefined ? Array.from({ length: n }, (_, i) => i) : [position < 0 ? position + n : position];
  return rows.map((i) => logs(row(logits, i)));
}

function logs(logits: ArrayLike<number>): Float64Array {
  const sum = logSumExp(logits);
  return Float64Array.from(logits, (x) => x - sum);
}

function divergence(p: Float64Array, q: Float64Array): number {
  return p.reduce((sum, x, i) => sum + Math.exp(x) * (x - q[i]!), 0);
}

// --- logit lens ------------------------------------------------------------------------------------------------------

export interface Lens { addresses: string[]; ids: Tensor; probabilities: Tensor; lse: Tensor }

/** What the head makes of the states after the embedding and after each block, each position on its own, or the whole text. */
export function lens(pass: Pass, k: number, whole = false): Lens {
  const { config, ops } = pass.plan, last: StackName = config.decoder ? "decoder" : "encoder";
  if (config.head.kind === "none" || config.head.kind === "span") {
    throw new Error(`logit lens: expected a head over tokens or labels, got '${config.head.kind}'`);
  }
  const n = config[last]!.n_layers, end = `${last}.blocks.${n - 1}.resid_post`;
  const addresses = [`${last}.blocks.0.resid_pre`, ...Array.from({ length: n }, (_, i) => `${last}.blocks.${i}.resid_post`)];
  const tail = ops.slice(ops.findIndex((op) => op.out === end) + 1);
  const layers = addresses.map((at) => {
    const { ids, values, lse } = likeliest(read(pass, tail, end, pass.values.get(at)!, whole), k);
    const width = ids.shape.at(-1) ?? 1;
    return { ids, lse, shares: Float32Array.from(values.data, (x, i) => Math.exp(x - lse.data[Math.floor(i / width)]!)) };
  });
  const [first] = layers as [(typeof layers)[number]];
  const shape = [layers.length, ...first.ids.shape];
  return {
    addresses,
    ids: { shape, data: Int32Array.from(layers.flatMap((one) => [...one.ids.data])) },
    probabilities: floats(shape, Float32Array.from(layers.flatMap((one) => [...one.shares]))),
    lse: floats(shape.slice(0, -1), Float32Array.from(layers.flatMap((one) => [...one.lse.data]))),
  };
}

/** The logits of these states instead of the last ones. Unless `whole`, pooling is skipped: each position is read as if it were alone. */
function read(pass: Pass, tail: readonly Op[], end: string, states: Floats, whole: boolean): Floats {
  const made = new Map([[end, states]]);
  let logits = states;
  for (const op of tail) {
    const inputs = (op.inputs ?? []).map((name) => made.get(name)!), weights = (op.weights ?? []).map((name) => pass.weights.get(name)!);
    logits = op.op === "pool" && !whole ? inputs[0]! : compute(op, inputs, weights, pass.plan.masks);
    made.set(op.out, logits);
  }
  return logits;
}

// --- neighbours ------------------------------------------------------------------------------------------------------

/** The rows of a stack's token table with the largest cosine to a token (itself excluded) or to a vector. */
export function neighbours(pass: Pass, stack: StackName, of: number | Tensor, k: number): { ids: number[]; cosines: number[] } {
  const name = pass.plan.ops.find((op) => op.op === "lookup" && op.inputs?.[0] === `${stack}.ids`)?.weights?.[0];
  const table = name === undefined ? undefined : pass.weights.get(name);
  if (!table) throw new Error("token table: expected a stack that reads tokens, got one that reads images");
  const [n, width] = table.shape as [number, number];
  if (typeof of === "number" && !(of >= 0 && of < n)) throw new Error(`token ${of}: expected a number below ${n}`);
  if (typeof of !== "number" && String(of.shape) !== String([width])) {
    throw new Error(`neighbours: expected a vector of ${width} numbers, got shape [${of.shape.join(", ")}]`);
  }
  const vector = typeof of === "number" ? row(table, of) : of.data;
  const cosines = Float64Array.from({ length: n }, (_, i) => (i === of ? -Infinity : cosine(row(table, i), vector)));
  const ids = topIndices(cosines, Math.min(k, typeof of === "number" ? n - 1 : n));
  return { ids, cosines: ids.map((id) => Math.max(-1, Math.min(1, cosines[id]!))) };
}

