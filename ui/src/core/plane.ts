/** The plane that keeps most of a few vectors (principal components), from their inner products. */

import { dot } from "./vectors";

export interface Plane { points: [number, number][]; explained: number }

/** Coordinates of each vector on the first two principal axes; about the origin, or about their mean. n x n work. */
export function plane(vectors: ArrayLike<number>[], origin = false): Plane {
  const centred = origin ? vectors.map((v) => Array.from(v)) : centre(vectors);
  const gram = centred.map((a) => centred.map((b) => dot(a, b)));
  const total = gram.reduce((sum, row, i) => sum + row[i]!, 0);
  const first = largest(gram), second = largest(deflated(gram, first));
  const points = centred.map((_, i): [number, number] => [ first.vector[i]! * Math.sqrt(first.value), second.vector[i]! * Math.sqrt(second.value)]);
  return { points, explained: total > 0 ? (first.value + second.value) / total : 1 };
}

interface Pair { value: number; vector: number[] }

/** The largest eigenvalue of a symmetric matrix without negative ones, by power iteration; largest component positive. */
function largest(matrix: number[][]): Pair {
  const n = matrix.length;
  const start = matrix.map((row) => dot(row, row)).reduce((best, x, i, all) => (x > all[best]! ? i : best), 0);
  let vector = unit(Array.from({ length: n }, (_, i) => matrix[start]?.[i] ?? 0));
  let value = 0;
  for (let i = 0; i < 500; i++) {
    const next = matrix.map((row) => dot(row, vector));
    const length = Math.sqrt(dot(next, next));
    if (length < 1e-30) return { value: 0, vector: vector.map(() => 0) };
    const moved = unit(next);
    const done = Math.abs(length - value) <= 1e-14 * length;
    [vector, value] = [moved, length];
    if (done) break;
  }
  const sign = vector.reduce((best, x) => (Math.abs(x) > Math.abs(best) ? x : best), 0) < 0 ? -1 : 1;
  return { value, vector: vector.map((x) => x * sign) };
}

function deflated(matrix: number[][], { value, vector }: Pair): number[][] {
  return matrix.map((row, i) => row.map((x, j) => x - value * vector[i]! * vector[j]!));
}

function centre(vectors: ArrayLike<number>[]): number[][] {
  const d = vectors[0]?.length ?? 0;
  const mean = Array.from({ length: d }, (_, j) => vectors.reduce((sum, v) => sum + v[j]!, 0) / vectors.length);
  return vectors.map((v) => Array.from(v, (x, j) => x - mean[j]!));
}

function unit(vector: number[]): number[] {
  const length = Math.sqrt(dot(vector, vector));
  return length > 0 ? vector.map((x) => x / length) : vector;
}
