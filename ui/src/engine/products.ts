/** Matrix products. Each is made of dot products of contiguous rows, eight at a time. */

/** Rows of numbers in memory, each `step` after the one before. */
export interface Rows {
  data: Float32Array;
  start: number;
  step: number;
}

export function rows(data: Float32Array, step: number, start = 0): Rows {
  return { data, start, step };
}

/** out[i, j] = a[i] . b[j] (+ bias[j]) for `n` rows of a and `m` of b, all `width` long; summed in float64. */
export function dotRows(out: Rows, a: Rows, b: Rows, n: number, m: number, width: number, bias?: Float32Array): void {
  if (n === 1) oneRow(out, a, b, m, width, bias);
  // An odd last row is computed together with the one before it, which is computed twice.
  else for (let i = 0; i < n; i += 2) twoRows(out, a, b, Math.min(i, n - 2), m, width, bias);
}

function twoRows(out: Rows, a: Rows, b: Rows, i: number, m: number, width: number, bias?: Float32Array): void {
  const x = a.data, w = b.data, y = out.data;
  const x0 = a.start + i * a.step, x1 = x0 + a.step;
  const y0 = out.start + i * out.step, y1 = y0 + out.step;
  let j = 0;
  for (; j + 4 <= m; j += 4) {
    const w0 = b.start + j * b.step, w1 = w0 + b.step, w2 = w1 + b.step, w3 = w2 + b.step;
    let s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;
    for (let k = 0; k < width; k++) {
      const p = x[x0 + k]!, q = x[x1 + k]!;
      const c0 = w[w0 + k]!, c1 = w[w1 + k]!, c2 = w[w2 + k]!, c3 = w[w3 + k]!;
      s00 += p * c0; s01 += p * c1; s02 += p * c2; s03 += p * c3;
      s10 += q * c0; s11 += q * c1; s12 += q * c2; s13 += q * c3;
    }
    const b0 = bias ? bias[j]! : 0, b1 = bias ? bias[j + 1]! : 0;
    const b2 = bias ? bias[j + 2]! : 0, b3 = bias ? bias[j + 3]! : 0;
    y[y0 + j] = s00 + b0; y[y0 + j + 1] = s01 + b1; y[y0 + j + 2] = s02 + b2; y[y0 + j + 3] = s03 + b3;
    y[y1 + j] = s10 + b0; y[y1 + j + 1] = s11 + b1; y[y1 + j + 2] = s12 + b2; y[y1 + j + 3] = s13 + b3;
  }
  for (; j < m; j++) {
    const add = bias ? bias[j]! : 0, wj = b.start + j * b.step;
    y[y0 + j] = dot(x, x0, w, wj, width) + add;
    y[y1 + j] = dot(x, x1, w, wj, width) + add;
  }
}

function oneRow(out: Rows, a: Rows, b: Rows, m: number, width: number, bias?: Float32Array): void {
  for (let j = 0; j < m; j++) {
    const sum = dot(a.data, a.start, b.data, b.start + j * b.step, width);
    out.data[out.start + j] = sum + (bias ? bias[j]! : 0);
  }
}

function dot(x: Float32Array, x0: number, w: Float32Array, w0: number, width: number): number {
  let a = 0, b = 0, c = 0, d = 0, k = 0;
  for (; k + 4 <= width; k += 4) {
    const i = x0 + k, j = w0 + k;
    a += x[i]! * w[j]!; b += x[i + 1]! * w[j + 1]!; c += x[i + 2]! * w[j + 2]!; d += x[i + 3]! * w[j + 3]!;
  }
  for (; k < width; k++) a += x[x0 + k]! * w[w0 + k]!;
  return a + b + c + d;
}

/** out = Σ_s x[s] b[s], for one row x of `m` numbers and as many rows of b. */
export function weighedRows(out: Rows, x: Rows, b: Rows, m: number, width: number): void {
  const sums = new Float64Array(width);
  for (let s = 0; s < m; s++) {
    const share = x.data[x.start + s]!, at = b.start + s * b.step;
    if (share !== 0) for (let k = 0; k < width; k++) sums[k]! += share * b.data[at + k]!;
  }
  out.data.set(sums, out.start);
}

/** Columns as rows: `n` rows of `m` from `start` on. */
export function transposed(data: Float32Array, start: number, n: number, m: number): Float32Array {
  const made = new Float32Array(n * m);
  for (let i = 0; i < n; i++) for (let j = 0; j < m; j++) made[j * n + i] = data[start + i * m + j]!;
  return made;
}
