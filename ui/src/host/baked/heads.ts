/** What each head of a pass does, measured from its weights on one text, as clearhead/analysis/attention.py does. */

import type { Tensor } from "../../core/host";
import type { HeadFacts, Op } from "../../core/protocol";
import { floats, row } from "../../core/tensor";
import { lengths } from "../../core/vectors";
import type { Pass } from "../../engine/forward";
import { compute } from "../../engine/ops";
import { SHARES } from "../../engine/taps";

const POINTED = 0.5, UNIFORM = 0.9;
const TARGETS = ["first", "previous", "same", "next"] as const;

export function statistics(pass: Pass): Record<string, HeadFacts> {
  const heads: [string, HeadFacts][] = [];
  for (const [path, value] of pass.values) {
    if (!SHARES.test(path)) continue;
    const [count = 0, queries = 0, keys = 0] = value.shape;
    for (let h = 0; h < count; h++) heads.push([`${path}[h=${h}]`, ofHead(row(value, h), queries, keys)]);
  }
  return Object.fromEntries(heads);
}

/** Shares are means over the queries that have such a key. */
function ofHead(weights: ArrayLike<number>, queries: number, keys: number): HeadFacts {
  const sums = { first: 0, previous: 0, same: 0, next: 0, entropy: 0, relative: 0, distance: 0 };
  const counts = { first: 0, previous: 0, same: 0, next: 0, relative: 0 };
  const diagonals = new Float64Array(queries + keys - 1);
  for (let t = 0; t < queries; t++) {
    let entropy = 0, choices = 0;
    for (const [place, key] of [["first", 0], ["previous", t - 1], ["same", t], ["next", t + 1]] as const) {
      if (key < 0 || key >= keys) continue;
      sums[place] += weights[t * keys + key]!;
      counts[place] += 1;
    }
    for (let s = 0; s < keys; s++) {
      const w = weights[t * keys + s]!;
      if (w !== 0) entropy -= w * Math.log(w);
      if (w > 0) choices += 1;
      sums.distance += w * Math.abs(s - t);
      diagonals[s - t + queries - 1]! += w / queries;
    }
    sums.entropy += entropy;
    if (choices < 2) continue;
    sums.relative += entropy / Math.log(choices);
    counts.relative += 1;
  }
  const mean = (name: keyof typeof counts): number => sums[name] / Math.max(1, counts[name]);
  const shares = { first: mean("first"), previous: mean("previous"), same: mean("same"), next: mean("next") };
  const relative_entropy = mean("relative"), offset = heaviest(diagonals, queries);
  return {
    kind: headKind(shares, relative_entropy), entropy: sums.entropy / queries, relative_entropy, ...shares,
    offset, offset_share: diagonals[offset + queries - 1]!, distance: sums.distance / queries,
  };
}

/** The diagonal with the most weight; of equal ones, the one nearer to 0. */
function heaviest(diagonals: Float64Array, queries: number): number {
  const offsets = Array.from(diagonals, (_, i) => i - queries + 1).sort((a, b) => Math.abs(a) - Math.abs(b) || a - b);
  const ranked = offsets.map((offset, i) => diagonals[offset + queries - 1]! - 1e-9 * i);
  return offsets[ranked.indexOf(Math.max(...ranked))]!;
}

function headKind(shares: Record<(typeof TARGETS)[number], number>, relativeEntropy: number): string {
  const best = TARGETS.reduce((found, place) => (shares[place] > shares[found] ? place : found));
  if (shares[best] >= POINTED) return best;
  return relativeEntropy >= UNIFORM ? "uniform" : "other";
}

/** h t s: || w_ts v_s W_O^h ||, how much each key gave. */
export function weightedNorms(pass: Pass, path: string): Tensor {
  const weights = pass.values.get(`${path}.weights`), ops = ["z", "heads"].map((name) => pass.plan.ops.find((op) => op.out === `${path}.${name}`));
  const [mix, project] = ops as [Op, Op];
  if (!weights) throw new Error(`${path}: expected an attention, such as decoder.blocks.0.attn`);
  const { shape: [heads, queries, keys], data } = weights as { shape: [number, number, number]; data: Float32Array };
  const given = compute(project, [pass.values.get(mix.inputs![1]!)!], [pass.weights.get(project.weights![0]!)!], {});
  const norms = lengths(given.data, heads * keys);
  return floats([heads, queries, keys], data.map((weight, i) => weight * norms[Math.floor(i / (queries * keys)) * keys + (i % keys)]!));
}
