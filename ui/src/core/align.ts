/** Two sequences under each other: what they share stands in one column. */

export type Column = readonly [a: number | null, b: number | null];

/** Longer sequences are paired by their places: comparing all pairs would take too long. */
const MOST = 1_000_000;

/** The columns in order, each with a place of one or both. What stands in both, in the same order, is paired; so is what
 *  was put in the place of something else. */
export function aligned(a: readonly unknown[], b: readonly unknown[]): Column[] {
  if (a.length * b.length > MOST) return replaced(a.map((_, i) => i), b.map((_, j) => j));
  const columns: Column[] = [];
  let [i, j] = [0, 0];
  for (const [nextA, nextB] of [...common(a, b), [a.length, b.length] as const]) {
    columns.push(...replaced(range(i, nextA), range(j, nextB)));
    if (nextA < a.length) columns.push([nextA, nextB]);
    [i, j] = [nextA + 1, nextB + 1];
  }
  return columns;
}

/** The places of a longest common subsequence. */
export function common(a: readonly unknown[], b: readonly unknown[]): (readonly [number, number])[] {
  const width = b.length + 1, longest = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i * width + j] = a[i] === b[j] ? longest[(i + 1) * width + j + 1]! + 1 : Math.max(longest[(i + 1) * width + j]!, longest[i * width + j + 1]!);
    }
  }
  const pairs: (readonly [number, number])[] = [];
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) pairs.push([i++, j++]);
    else if (longest[(i + 1) * width + j]! >= longest[i * width + j + 1]!) i++;
    else j++;
  }
  return pairs;
}

function replaced(a: readonly number[], b: readonly number[]): Column[] {
  return Array.from({ length: Math.max(a.length, b.length) }, (_, n): Column => [a[n] ?? null, b[n] ?? null]);
}

function range(from: number, to: number): number[] {
  return Array.from({ length: to - from }, (_, n) => from + n);
}
