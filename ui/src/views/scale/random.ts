/** Products of random vectors, the same on every machine: what scores would be if queries and keys knew nothing. */

import { dot, sum } from "../../core/vectors";

/** Numbers in [0, 1) from a seed (mulberry32). */
export function uniform(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = Math.imul(state ^ (state >>> 15), state | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) / 4294967296;
  };
}

/** Standard normal ones (Box and Muller 1958). */
export function normal(seed: number): () => number {
  const next = uniform(seed);
  let spare: number | null = null;
  return () => {
    const kept = spare;
    if (kept !== null) return ((spare = null), kept);
    const radius = Math.sqrt(-2 * Math.log(1 - next())), angle = 2 * Math.PI * next();
    spare = radius * Math.sin(angle);
    return radius * Math.cos(angle);
  };
}

/** `count` products q · k of vectors with `width` independent standard normal components. */
export function products(width: number, count: number, seed: number): Float64Array {
  const next = normal(seed);
  return Float64Array.from({ length: count }, () => {
    let sum = 0;
    for (let i = 0; i < width; i++) sum += next() * next();
    return sum;
  });
}

export function deviation(values: ArrayLike<number>): number {
  const mean = sum(Array.from(values)) / values.length;
  return Math.sqrt(Math.max(0, dot(values, values) / values.length - mean ** 2));
}
