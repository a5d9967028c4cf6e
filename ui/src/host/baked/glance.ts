/** The reply to `run` from a pass of the engine, as clearhead/explorer/answering/values.py makes it. */

import type { Tensor } from "../../core/host";
import type { Fact } from "../../core/protocol";
import type { Floats } from "../../core/tensor";
import { logSumExp, topIndices } from "../../core/top";
import { byPath } from "../../engine/edits";
import type { Pass } from "../../engine/forward";
import { factsOf, SHARES } from "../../engine/taps";

const LIKELIEST = 20;

export function facts(pass: Pass): Record<string, Fact> {
  const found = factsOf(pass.values, new Set(byPath(pass.edits).keys()));
  const pixels = pass.numbers.get("encoder.embed.pixels");
  return pixels ? { ...found, "encoder.embed.pixels": { shape: pixels.shape, axes: "c y x" } } : found;
}

/** Attention as pixels, and the likeliest answers or all. */
export function glance(pass: Pass): Map<string, Tensor> {
  const tensors = new Map<string, Tensor>();
  for (const [path, value] of pass.values) {
    if (!SHARES.test(path)) continue;
    const { pixels, max } = toPixels(value);
    tensors.set(`${path}.u8`, pixels).set(`${path}.max`, max);
  }
  const logits = pass.values.get("head.logits"), kind = pass.plan.config.head.kind;
  if (!logits) return tensors;
  if (kind !== "language") return tensors.set("output.logits", logits);
  for (const [name, tensor] of Object.entries(likeliest(logits, LIKELIEST))) tensors.set(`output.${name}`, tensor);
  return tensors;
}

/** round(255 x / max of its row), and the maxima: clearhead/explorer/recording/recording.py. */
function toPixels({ shape, data }: Floats): { pixels: Tensor; max: Tensor } {
  const n = shape.at(-1) ?? 1, pixels = new Uint8Array(data.length), max = new Float32Array(data.length / n);
  for (let row = 0; row < max.length; row++) {
    for (let i = row * n; i < (row + 1) * n; i++) max[row] = Math.max(max[row]!, data[i]!);
    const largest = Math.max(max[row]!, 2 ** -126);
    for (let i = row * n; i < (row + 1) * n; i++) pixels[i] = roundEven((Math.max(0, data[i]!) / largest) * 255);
  }
  return { pixels: { shape, data: pixels }, max: { shape: shape.slice(0, -1), data: max } };
}

function roundEven(x: number): number {
  const below = Math.floor(x), rest = x - below;
  return rest < 0.5 || (rest === 0.5 && below % 2 === 0) ? below : below + 1;
}

/** Of each row of logits, t v: the k largest, t k, with their ids, and the log of the sum of exp of all, t. */
export function likeliest(logits: Tensor, k: number): { ids: Tensor; values: Tensor; lse: Tensor } {
  const v = logits.shape.at(-1) ?? 1, rows = logits.data.length / v, n = Math.min(k, v), lead = logits.shape.slice(0, -1);
  const ids = new Int32Array(rows * n), values = new Float32Array(rows * n), lse = new Float32Array(rows);
  for (let row = 0; row < rows; row++) {
    const data = logits.data.subarray(row * v, (row + 1) * v);
    const top = topIndices(data, n);
    top.forEach((id, i) => {
      ids[row * n + i] = id;
      values[row * n + i] = data[id]!;
    });
    lse[row] = logSumExp(data);
  }
  return { ids: { shape: [...lead, n], data: ids }, values: { shape: [...lead, n], data: values }, lse: { shape: lead, data: lse } };
}
