/** How much of one logit each part of the network wrote, as clearhead/analysis/attribution.py says it. */

import type { Asked, Tensor } from "../../core/host";
import type { AttributionReply } from "../../core/protocol";
import { row } from "../../core/tensor";
import { dot } from "../../core/vectors";
import type { Pass } from "../../engine/forward";
import { Shares } from "./shares";

/** logit = Σ part · W[logit] + bias, the norms on the way with the scale that they had   (Elhage et al. 2021) */
export function attribution(pass: Pass, { position, logit, minus }: Omit<Asked<"attribution">, "run">): AttributionReply {
  const of = direction(pass, logit, minus), made = new Shares(pass), { inputs, weights } = made.head(), shares: Record<string, number> = {};
  const [way, bias] = weights!.map((name) => of(pass.weights.get(name)!)) as [Float64Array, Float64Array?];
  const { shape, data } = pass.values.get("head.logits")!, pools = shape.length === 1;
  const positions = pools ? pass.numbers.get(`${lastOf(pass)}.positions`)!.data.keys() : [position];
  for (const at of positions) {
    const { names, values } = made.parts(inputs![0]!, at);
    names.forEach((name, i) => (shares[name] = (shares[name] ?? 0) + dot(row(values, i), way)));
  }
  if (bias) shares["head.output.bias"] = bias[0]!;
  return { shares, logit: of({ shape: [shape.at(-1)!], data: pools ? data : row({ shape, data }, position) })[0]! };
}

/** What takes of rows of numbers that of the logit, or the difference of two. */
export function direction(pass: Pass, logit: number, minus?: number): (values: Tensor) => Float64Array {
  const n = pass.values.get("head.logits")?.shape.at(-1) ?? 0;
  for (const label of [logit, minus ?? 0]) {
    if (!(label >= 0 && label < n)) throw new Error(`logit ${label}: expected a number below ${n}`);
  }
  return (values) => {
    const own = Float64Array.from(row(values, logit)), other = minus === undefined ? null : row(values, minus);
    return own.map((x, i) => x - (other?.[i] ?? 0));
  };
}

/** The stack whose states the head reads. */
export function lastOf({ plan: { config } }: Pass): "encoder" | "decoder" {
  return config.decoder ? "decoder" : "encoder";
}
