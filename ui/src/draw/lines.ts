/** Curves from queries to keys over a line of text: where the words stand, which curves are drawn, and their paths. */

import type { Numbers } from "../core/host";

export interface Slot { left: number; width: number; middle: number }

/** A place for each word, as wide as it needs, one after the other. */
export function slotsOf(labels: readonly string[], gap = 4): Slot[] {
  let left = 0;
  return labels.map((label) => {
    const width = Math.max(22, Math.min(124, 16 + 7.9 * [...label].length));
    const slot = { left, width, middle: left + width / 2 };
    left += width + gap;
    return slot;
  });
}

/** One head's weights, or their change: query by key. */
export interface Looks { head: number; values: Numbers }
export interface Strand { head: number; query: number; key: number; value: number }

/** Weights below this are not drawn, but for the strongest of each query. */
export const LEAST = 0.03;
/** More curves than this are not drawn. */
export const MOST = 900;
const OF_CHOSEN = 40;

/** The curves that are drawn, the weakest first, so that the strongest lie on top: those of the chosen query, then the
 *  strongest of all. `top` is what the thickest curve means. */
export function strandsOf(heads: readonly Looks[], keys: number, chosen: number, top = 1): { strands: Strand[]; all: number } {
  const own: Strand[] = [], others: Strand[] = [];
  for (const { head, values } of heads) {
    for (let query = 0; query * keys < values.length; query++) {
      const row = Array.from({ length: keys }, (_, key): Strand => ({ head, query, key, value: values[query * keys + key]! }))
        .filter(({ value }) => value !== 0 && Number.isFinite(value)).sort(bySize);
      if (query === chosen) own.push(...row.slice(0, OF_CHOSEN));
      else others.push(...row.filter(({ value }, rank) => rank === 0 || Math.abs(value) >= LEAST * top));
    }
  }
  const strands = [...own, ...others.sort(bySize).slice(0, Math.max(0, MOST - own.length))].sort((one, other) => bySize(other, one));
  return { strands, all: own.length + others.length };
}

function bySize(one: Strand, other: Strand): number {
  return Math.abs(other.value) - Math.abs(one.value);
}

/** How high the arc over a distance is, up to `most`. */
export function heightOf(distance: number, longest: number, most: number): number {
  return Math.max(14, most * Math.sqrt(Math.abs(distance) / Math.max(longest, 1)));
}

/** An arc from x to x over the ground (height < 0: under it); a loop where both are one. */
export function arc(from: number, to: number, ground: number, height: number): string {
  const [a, b] = from === to ? [from - 9, from + 9] : [from, to], top = ground - height * 1.33;
  return `M${r(from)} ${r(ground)}C${r(a)} ${r(top)} ${r(b)} ${r(top)} ${r(to)} ${r(ground)}`;
}

/** A curve from a word of one line to a word of another. */
export function bridge(from: number, to: number, y1: number, y2: number): string {
  const middle = (y1 + y2) / 2;
  return `M${r(from)} ${r(y1)}C${r(from)} ${r(middle)} ${r(to)} ${r(middle)} ${r(to)} ${r(y2)}`;
}

function r(x: number): number {
  return Math.round(x * 10) / 10;
}
