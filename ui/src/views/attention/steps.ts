/** What happens between the six steps of one attention, by the model's own list of ops. */

import type { Op } from "../../core/protocol";
import { row, toFloats } from "../../core/tensor";
import { argmax, best, dot, softmax } from "../../core/vectors";
import type { AttentionPlace, Run } from "../../parts/kit";

/** The ops that lead from one value to another along their first inputs, in the order in which they run; none if they
 *  do not. */
export function opsBetween(opAt: (path: string) => Op | undefined, from: string, to: string): Op[] {
  const found: Op[] = [];
  for (let op = opAt(to); op; op = opAt(op.inputs?.[0] ?? "")) {
    if (op.out === from) return found;
    found.unshift(op);
  }
  return [];
}

/** What becomes of a score before the mask: it is scaled, capped, and told how far apart query and key are. */
export function changesOfScores(run: Pick<Run, "op">, at: string): Op[] {
  const masked = run.op(`${at}.masked`)?.inputs?.[0];
  return masked === undefined ? [] : opsBetween((path) => run.op(path), `${at}.scores.product`, masked);
}

/** What becomes of a query or key after X W: it is normalised, and turned by its position. */
export function changesOfSide(run: Pick<Run, "op">, at: string, side: Letter): Op[] {
  return opsBetween((path) => run.op(path), `${at}.${side}.linear`, `${at}.${side}`).filter(({ op }) => op !== "split" && op !== "copy");
}

/** The width of one head of a side's product, which the split names where it is not that of queries. */
export function widthOf(run: Pick<Run, "op">, at: string, side: Letter, dk: number): number {
  return (run.op(`${at}.${side}.split`) ?? run.op(`${at}.${side}`))?.by?.width ?? dk;
}

export type Letter = "q" | "k" | "v";

/** X W = Q of one head, or the same of K or V. */
export interface Projection {
  x: Float32Array; w: Float32Array; out: Float32Array; bias: Float32Array | null;
  rows: number; d: number; width: number;
}

/** More numbers than this are not fetched for a picture. */
export const MOST_NUMBERS = 600_000;

/** Fetches X and the columns of one head of W, and multiplies them; null if they are more than a picture needs. */
export async function projected(run: Run, place: AttentionPlace, side: Letter, head: number, dk: number): Promise<Projection | null> {
  const linear = run.op(`${place.at}.${side}.linear`), [from, offset] = linear?.weights ?? [], input = linear?.inputs?.[0];
  if (linear?.op !== "linear" || !from || !input) return null;
  const { shape, data } = toFloats(await run.value(input)), [rows = 0, d = 0] = shape;
  const width = widthOf(run, place.at, side, dk);
  if (d * width > MOST_NUMBERS || rows * d > MOST_NUMBERS) return null;
  const names = Array.from({ length: width }, (_, i) => `${from}[i=${head * width + i}]`);
  const found = await run.weights(offset ? [...names, offset] : names);
  const columns = names.map((name) => Float32Array.from(found.get(name)!.data));
  const bias = offset ? Float32Array.from(found.get(offset)!.data).slice(head * width, (head + 1) * width) : null;
  const w = new Float32Array(d * width), out = new Float32Array(rows * width);
  columns.forEach((column, j) => column.forEach((value, i) => (w[i * width + j] = value)));
  for (let i = 0; i < rows; i++) {
    const x = row({ shape, data }, i) as Float32Array;
    columns.forEach((column, j) => (out[i * width + j] = dot(x, column) + (bias?.[j] ?? 0)));
  }
  return { x: data, w, out, bias, rows, d, width };
}

/** Of each query its open keys and their shares with the factor and without it; what positions add stays as it is. */
export function scaledRows(place: AttentionPlace, product: ArrayLike<number>, scores: ArrayLike<number>, factor: number, trained = factor) {
  const m = place.keys.length;
  return place.queries.map((_, query) => {
    const at = place.keys.flatMap((_, s) => (!place.closed(query, s) && Number.isFinite(scores[query * m + s]) ? [s] : []));
    const plain = at.map((s) => product[query * m + s] ?? 0), added = at.map((s, i) => (scores[query * m + s] ?? 0) - plain[i]! * factor);
    const scaled = softmax(plain.map((x, i) => x * trained + added[i]!)), unscaled = softmax(plain.map((x, i) => x + added[i]!)), top = argmax(unscaled);
    return { query, key: at[top] ?? 0, at, scaled, unscaled, with: scaled[top]!, without: unscaled[top]!, gain: unscaled[top]! - Math.max(...scaled) };
  });
}

/** The one whose strongest key the factor changes most. */
export const mostOf = <T extends { gain: number }>(rows: readonly T[]): T => best(rows, ({ gain }) => gain)!;

/** A query's scores, −∞ where they are closed, and its weights. Some models give each head a score that no key has, which
 *  takes a part of the sum: it stands behind those of the keys. */
export async function rowOf(place: AttentionPlace, run: Run, query: number, head: number): Promise<{ scores: number[]; shares: number[]; sink: number | undefined }> {
  const [scores, weights] = await Promise.all([place.scores, place.weights].map((at) => run.value(`${at.slice(0, -1)},t=${query}]`)));
  const row = Array.from(scores!.data, (x, s) => (place.closed(query, s) || Number.isNaN(x) ? -Infinity : x));
  const name = run.op(`${place.at}.weights`)?.weights?.[0], sink = name ? (await run.weights([name])).get(name)?.data[head] : undefined;
  return { scores: sink === undefined ? row : [...row, sink], shares: Array.from(weights!.data), sink };
}

/** The place of the largest value, by its size. */
export function strongestOf(values: ArrayLike<number>): number {
  return argmax(Array.from(values, Math.abs));
}
