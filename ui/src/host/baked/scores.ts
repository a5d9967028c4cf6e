/** A score of a head, and the value that the head carries, as sums over earlier parts: the twin of clearhead/analysis/scores.py. */

import { parseAddress } from "../../core/address";
import type { Asked } from "../../core/host";
import type { OVReply, QKReply } from "../../core/protocol";
import { axisLength, cell, floats, row, type Floats } from "../../core/tensor";
import { dot } from "../../core/vectors";
import { noSuch } from "../../engine/edits";
import type { Pass } from "../../engine/forward";
import { setting, softCap } from "../../engine/functions";
import { distanceRow } from "../../engine/kinds/positions";
import { byRows } from "../../engine/matrix";
import { rows } from "../../engine/products";
import { direction, lastOf } from "./attribution";
import { Shares, type Parts } from "./shares";

type Pair = QKReply["pairs"][number];
type Place = [h: number, t: number, s: number];
interface Terms { pairs: Pair[]; others: Record<string, number> }

/** score = sum_ij q_i . k_j scale + position terms   (Elhage et al. 2021) */
export function splitScore(pass: Pass, { at, k }: Omit<Asked<"qk">, "run">): QKReply {
  const [path, place] = cellOf(pass, at, ".scores"), { pairs: all, others } = terms(new Shares(pass), path, place);
  const each = new Map<string, Pair>();
  for (const { query, key, value } of all) {
    const name = `${query} ${key}`;
    each.set(name, { query, key, value: value + (each.get(name)?.value ?? 0) });
  }
  const sorted = [...each.values()].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)), pairs = sorted.slice(0, k);
  const parts = (side: "query" | "key"): number => new Set(all.map((pair) => pair[side])).size, left = parts("query") * parts("key") - pairs.length;
  return { pairs, rest: total(sorted.slice(k)), left, others, score: cell(pass.values.get(path)!, place) };
}

/** weight (v_i W_O) . direction for each part i of the value   (Elhage et al. 2021) */
export function splitValue(pass: Pass, { at, logit, minus }: Omit<Asked<"ov">, "run">): OVReply {
  const [path, [h, t, s]] = cellOf(pass, at, ".weights"), made = new Shares(pass), head = made.head();
  if (!path.startsWith(lastOf(pass))) throw new Error(noSuch(at)); // No direct way: the logits read the other stack.
  const part = path.replace(/\.weights$/, ""), way = direction(pass, logit, minus)(pass.weights.get(head.weights![0]!)!);
  const { names, values } = made.parts(made.ops.get(`${part}.z`)!.inputs![1]!, s), whole = made.at(`${part}.v`, s);
  const map = pass.weights.get(`${part}.out.weight`)! as Floats, n = names.length, width = axisLength(values, -1), d = axisLength(map, 0);
  const weight = cell(pass.values.get(path)!, [h, t, s]), x = floats([n + 1, width]), added = floats([n + 1, d]);
  x.data.set(row(values, h));
  x.data.set(row(whole, Math.floor((h * whole.shape[0]!) / values.shape[0]!)), n * width);
  byRows(rows(added.data, d), rows(x.data.map((value) => value * weight), width), map, n + 1, { from: h * width, width });
  const isEdited = ["z", "heads", "out"].some((name) => made.byHand.has(`${part}.${name}`));
  const arrived = isEdited ? null : made.onward(`${part}.out`, added, t, head.inputs![0]!);
  const share = (i: number): number => (arrived ? dot(row(arrived, i), way) : 0), shares: Record<string, number> = {};
  names.forEach((name, i) => (shares[name] = (shares[name] ?? 0) + share(i)));
  return { shares, contribution: share(n) };
}

/** The path and the cell of an address. */
function cellOf(pass: Pass, at: string, end: string): [path: string, place: Place] {
  const { path, index } = parseAddress(at), { h = NaN, t = NaN, s = NaN } = Object.fromEntries(index) as Record<string, number>;
  const place: Place = [h, t, s], shape = path.endsWith(end) ? pass.values.get(path)?.shape : undefined;
  if (!shape || place.some((i, axis) => !(i >= 0 && i < shape[axis]!))) throw new Error(noSuch(at));
  return [path, place];
}

/** The terms of the number at a path: the ops from queries and keys to one score, read as a sum. */
function terms(made: Shares, at: string, place: Place): Terms {
  const [h, t, s] = place, op = made.ops.get(at)!, [first, second] = op.inputs as [string, string];
  const other = (value: number): Terms => ({ pairs: [], others: { [at]: value } });
  if (made.byHand.has(at)) return other(cell(made.pass.values.get(at)!, place));
  const before = (name: string): Terms => terms(made, name, place);
  const product = (query: string, i: number, key: string, j: number): Terms => multiplied(made.parts(query, i), made.parts(key, j), h);
  switch (op.op) {
    case "matmul_nt":
      return product(first, t, second, s);
    case "add": {
      const a = before(first), b = before(second);
      return { pairs: [...a.pairs, ...b.pairs], others: { ...a.others, ...b.others } };
    }
    case "scale": {
      const { pairs, others } = before(first);
      return { pairs: pairs.map((pair) => ({ ...pair, value: pair.value * setting(op, "factor") })), others };
    }
    case "soft_cap": {
      const { pairs, others } = before(first), sum = total(pairs) + total(Object.values(others).map((value) => ({ value })));
      return { pairs, others: { ...others, [at]: softCap(sum, setting(op, "cap")) - sum } };
    }
    case "by_distance": {
      const away = distanceRow(op, made.number(op, t) - made.number(op, s)), [content, vectors] = made.ops.get(first)!.inputs as [string, string];
      return op.how === "query" ? product(content, t, vectors, away) : product(vectors, away, content, s);
    }
    default:
      return other(cell(made.evaluated(op, floats([2], Float32Array.of(made.number(op, t), made.number(op, s)))), [h, 0, 1]));
  }
}

function multiplied(q: Parts, k: Parts, h: number): Terms {
  const pairs = q.names.flatMap((query, i) => k.names.map((key, j) => ({ query, key, value: dot(row(q.values, h, i), row(k.values, h, j)) })));
  return { pairs, others: {} };
}

function total(terms: readonly { value: number }[]): number {
  return terms.reduce((sum, { value }) => sum + value, 0);
}
