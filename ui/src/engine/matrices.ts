/** The ops that take heads apart, put them together, and multiply by matrices. */

import { axisLength, floats, row, size, type Floats } from "../core/tensor";
import { setting } from "./functions";
import { dotRows, transposed, type Rows } from "./products";
import { fail, weight, type Step } from "./step";

/** … n -> … m: x W^T + b. */
export function linear(s: Step): Floats {
  const x = s.x[0]!, w = weight(s, 0), width = axisLength(w, 1), m = axisLength(w, 0);
  if (axisLength(x, -1) !== width) fail(s.op, `shapes [${x.shape}] and [${w.shape}] do not fit`);
  const out = floats([...x.shape.slice(0, -1), m]);
  dotRows(rows(out.data, m), rows(x.data, width), rows(w.data, width), x.data.length / width, m, width, s.w[1]?.data);
  return out;
}

function rows(data: Float32Array, step: number, start = 0): Rows {
  return { data, start, step };
}

/** … t n times … m n (`turned`), or times … n m. */
export function matmul(s: Step, turned: boolean): Floats {
  const [a, b] = s.x as [Floats, Floats], n = axisLength(a, -2), width = axisLength(a, -1);
  const m = axisLength(b, turned ? -2 : -1), count = size(a.shape.slice(0, -2));
  if (b.data.length !== count * m * width) fail(s.op, `shapes [${a.shape}] and [${b.shape}] do not fit`);
  const out = floats([...a.shape.slice(0, -1), m]);
  for (let h = 0; h < count; h++) {
    const start = h * m * width;
    const right = turned ? rows(b.data, width, start) : rows(transposed(b.data, start, width, m), width);
    dotRows(rows(out.data, m, h * n * m), rows(a.data, width, h * n * width), right, n, m, width);
  }
  return out;
}

/** t (h k) -> h t k */
export function split(s: Step): Floats {
  const heads = setting(s.op, "heads"), n = axisLength(s.x[0]!, 0), width = axisLength(s.x[0]!, 1) / heads;
  const out = floats([heads, n, width]);
  for (let h = 0; h < heads; h++) {
    for (let t = 0; t < n; t++) out.data.set(row(s.x[0]!, t).subarray(h * width, (h + 1) * width), (h * n + t) * width);
  }
  return out;
}

/** Each key or value head for every query head of its group. */
export function repeat(s: Step): Floats {
  const times = setting(s.op, "times"), [heads, ...rest] = s.x[0]!.shape as [number, ...number[]];
  const out = floats([heads * times, ...rest]), each = size(rest);
  for (let h = 0; h < heads * times; h++) out.data.set(row(s.x[0]!, Math.floor(h / times)), h * each);
  return out;
}

/** h t k -> h t d: each head through its columns of the output matrix. */
export function project(s: Step): Floats {
  const [heads, n, width] = s.x[0]!.shape as [number, number, number], w = weight(s, 0), d = axisLength(w, 0);
  const out = floats([heads, n, d]);
  for (let h = 0; h < heads; h++) {
    const z = rows(s.x[0]!.data, width, h * n * width), columns = rows(w.data, heads * width, h * width);
    dotRows(rows(out.data, d, h * n * d), z, columns, n, d, width);
  }
  return out;
}

export function sumHeads(s: Step): Floats {
  const [heads, n, d] = s.x[0]!.shape as [number, number, number], x = s.x[0]!.data, bias = s.w[0]?.data;
  const out = floats([n, d]);
  for (let i = 0; i < n * d; i++) {
    let sum = bias ? bias[i % d]! : 0;
    for (let h = 0; h < heads; h++) sum += x[h * n * d + i]!;
    out.data[i] = sum;
  }
  return out;
}
