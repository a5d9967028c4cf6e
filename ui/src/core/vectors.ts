/** Sums, lengths, angles and the order of numbers. */

import type { Numbers } from "./host";

export function dot(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
}

export function sum(numbers: Iterable<number>): number {
  let total = 0;
  for (const x of numbers) total += x;
  return total;
}

export function length(a: ArrayLike<number>): number {
  return Math.sqrt(dot(a, a));
}

/** The cosine of the angle between two vectors; 0 if one of them is zero. */
export function cosine(a: ArrayLike<number>, b: ArrayLike<number>): number {
  const lengths = Math.sqrt(dot(a, a) * dot(b, b));
  return lengths > 0 ? dot(a, b) / lengths : 0;
}

/** The length of each row. */
export function lengths(data: Numbers, rows: number): Float32Array {
  const width = data.length / Math.max(1, rows);
  return Float32Array.from({ length: rows }, (_, r) => length(data.subarray(r * width, (r + 1) * width)));
}

/** Of each score the exponential of its distance from the largest, and their sum; -Infinity is closed. */
export function exponentials(scores: ArrayLike<number>): { powers: Float64Array; sum: number } {
  let most = -Infinity;
  for (let i = 0; i < scores.length; i++) most = Math.max(most, scores[i]!);
  const powers = Float64Array.from(scores, (x) => (x === -Infinity ? 0 : Math.exp(x - most)));
  return { powers, sum: sum(powers) };
}

/** softmax(x / temperature), in double precision. */
export function softmax(logits: ArrayLike<number>, temperature = 1): Float64Array {
  const { powers, sum } = exponentials(Float64Array.from(logits, (x) => x / temperature));
  return powers.map((x) => x / sum);
}

/** Indices, largest value first. */
export function order(values: ArrayLike<number>): number[] {
  return Array.from(values, (_, i) => i).sort((i, j) => values[j]! - values[i]! || i - j);
}

/** The one of which a number is largest, of equal ones the first. */
export function best<T>(all: readonly T[], of: (one: T) => number): T | undefined {
  return all[argmax(all.map(of))];
}

/** The place of the largest, of equal ones the first. */
export function argmax(values: ArrayLike<number>): number {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i]! > values[best]!) best = i;
  return best;
}
