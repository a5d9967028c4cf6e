/** From logits to the shares that a token is drawn by, one step after another. */

import { extent } from "../../draw/scale";
import { narrowed } from "../../engine/writing/sampling";
import { softmax } from "../../parts/kit";

export interface Shares {
  /** softmax(logits): what the model says. */
  trueShares: Float64Array;
  /** softmax(logits / T). */
  tempered: Float64Array;
  /** Of those, the k likeliest made to add up to 1; 0: cut. */
  afterK: Float64Array;
  /** Of those, the fewest that reach p made to add up to 1; 0: cut. */
  afterP: Float64Array;
}

/** One step's shares of every answer, as a column whose full bars are 1; signed: differences. */
export interface Column {
  title: string;
  note: string;
  shares: Float64Array;
  signed?: boolean;
  /** Whether a share of 0 was cut. */
  cuts?: boolean;
}

/** As the model is sampled: temperature, then top-k, then top-p. A temperature of 0 takes the likeliest. */
export function sharesOf(logits: ArrayLike<number>, temperature: number, topK: number | null, topP: number): Shares {
  const scores = Float64Array.from(logits, (x) => x / (temperature || 1e-6));
  const shares = (top_k: number | null, top_p: number): Float64Array => softmax(narrowed(scores, { top_k, top_p }));
  return { trueShares: softmax(logits), tempered: shares(null, 1), afterK: shares(topK, 1), afterP: shares(topK, topP) };
}

/** In each of `n` equal steps from the smallest value to the largest, the middle and the share of the values. */
export function spread(values: ArrayLike<number>, n = 24): [middle: number, share: number][] {
  const finite = Array.from(values).filter(Number.isFinite), [low, high] = extent(finite), step = (high - low) / n || 1;
  const of = finite.map((x) => Math.min(n - 1, Math.floor((x - low) / step)));
  return Array.from({ length: n }, (_, i) => [low + (i + 0.5) * step, of.filter((one) => one === i).length / of.length]);
}

/** -sum p ln p, in nats. */
export function entropy(shares: Float64Array): number {
  return shares.reduce((sum, p) => (p > 0 ? sum - p * Math.log(p) : sum), 0);
}

/** The rank of an answer, 1 for the likeliest. Equal values share a rank. */
export function rank(values: ArrayLike<number>, id: number): number {
  const own = values[id] ?? -Infinity;
  let before = 0;
  for (let i = 0; i < values.length; i++) if (values[i]! > own) before += 1;
  return before + 1;
}

/** What a part of the network is, from the address of its share in a logit. */
export interface Writer {
  kind: "embedding" | "head" | "ffn" | "bias";
  stack: string;
  layer: number | null;
  part: "attn" | "cross" | null;
  head: number | null;
}

export function writerOf(address: string): Writer {
  const [stack = ""] = address.split(".");
  const block = /\.blocks\.(\d+)\./.exec(address)?.[1];
  const layer = block === undefined ? null : Number(block);
  const head = /\.(attn|cross)\.heads\[h=(\d+)\]$/.exec(address);
  if (head) return { kind: "head", stack, layer, part: head[1] as "attn" | "cross", head: Number(head[2]) };
  if (address.endsWith(".ffn.out")) return { kind: "ffn", stack, layer, part: null, head: null };
  if (address.endsWith(".embed.tokens") || address.endsWith(".embed.positions"))
    return { kind: "embedding", stack, layer, part: null, head: null };
  return { kind: "bias", stack, layer, part: null, head: null };
}
