/** Terms that add up: which of them are drawn, and the stairs that they climb. */

/** The places that are drawn of many: all, or the largest and those that are asked for, in their order. */
export function shownOf(values: ArrayLike<number>, most: number, always: readonly number[] = []): number[] {
  const all = Array.from(values, (_, i) => i);
  if (all.length <= most) return all;
  const size = (i: number): number => (Number.isFinite(values[i]) ? Math.abs(values[i]!) : 0);
  const largest = [...all].sort((i, j) => size(j) - size(i));
  const wanted = always.filter((i) => i >= 0 && i < all.length);
  return [...new Set([...wanted, ...largest])].slice(0, most).sort((i, j) => i - j);
}

/** The values at these places, and last what the others add up to, if there are others. */
export function withOthers(values: ArrayLike<number>, shown: readonly number[]): number[] {
  const kept = shown.map((i) => values[i] ?? NaN);
  if (shown.length === values.length) return kept;
  const chosen = new Set(shown);
  return [...kept, Array.from(values).reduce((sum, x, i) => (chosen.has(i) ? sum : sum + x), 0)];
}

export interface Stair { from: number; to: number }

/** Each term as a stair from the sum before it to the sum after it. */
export function stairs(terms: readonly number[]): Stair[] {
  let sum = 0;
  return terms.map((term) => ({ from: sum, to: (sum += term) }));
}

/** What the stairs reach over, 0 included. */
export function reachOf(all: readonly Stair[]): { low: number; high: number } {
  const ends = [0, ...all.map(({ to }) => to)];
  return { low: Math.min(...ends), high: Math.max(...ends) };
}
