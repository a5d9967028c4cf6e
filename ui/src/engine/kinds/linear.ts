/** Linear maps: x W^T + b, and the output map of attention, head by head. */

import { axisLength, floats, type Floats } from "../../core/tensor";
import { fail, lastRow, ofInput, ofVector, ofWeight, products, weight, type Call, type OpKind } from "../kind";
import { byRows } from "../matrix";
import { rows } from "../products";

export const LINEAR = {
  linear: {
    inputs: [1, 1],
    compute: linear,
    needs: (cell) => [...lastRow(cell), ofWeight(cell.op, 0, [cell.index.at(-1)!, null]), ...ofVector(cell.op, 1)],
    explain: ({ index }, [x, w, b]) =>
      ({ form: "products", products: products(x!, w!), bias: b?.term(index.at(-1)) ?? null }),
    length: (op, axis, from) => (axis ? op.by?.width : undefined) ?? from(axis),
  },
  project: {
    inputs: [1, 1],
    compute: project,
    needs: ({ op, index: [h, t, d] }) => [ofInput(op, 0, [h!, t!, null]), ofWeight(op, 0, [d!, null])],
    explain: ({ index: [h] }, [z, w]) => ({ form: "products", products: products(z!, w!, h! * z!.length), bias: null }),
  },
  sum_heads: {
    inputs: [1, 1],
    compute: sumHeads,
    needs: ({ op, index: [t, d] }) => [ofInput(op, 0, [null, t!, d!]), ...ofVector(op, 0)],
    explain: ({ index: [, d] }, [heads, b]) => ({ form: "sum", terms: [...heads!.terms(), ...(b ? [b.term(d)] : [])] }),
  },
} satisfies Record<string, OpKind>;

/** … n -> … m */
function linear(call: Call): Floats {
  const x = call.x[0]!, w = weight(call, 0), width = axisLength(w, 1), m = axisLength(w, 0);
  if (axisLength(x, -1) !== width) fail(call.op, `shapes [${x.shape}] and [${w.shape}] do not fit`);
  const out = floats([...x.shape.slice(0, -1), m]);
  byRows(rows(out.data, m), rows(x.data, width), w, x.data.length / width, { from: 0, width }, call.w[1]?.data);
  return out;
}

/** h t k -> h t d: each head through its columns of the output matrix. */
function project(call: Call): Floats {
  const { shape, data } = call.x[0]!, [heads, n, width] = shape as [number, number, number];
  const w = weight(call, 0), d = axisLength(w, 0), out = floats([heads, n, d]);
  for (let h = 0; h < heads; h++) {
    byRows(rows(out.data, d, h * n * d), rows(data, width, h * n * width), w, n, { from: h * width, width });
  }
  return out;
}

function sumHeads({ x: [value], w: [bias] }: Call): Floats {
  const { shape, data } = value!, [heads, n, d] = shape as [number, number, number], out = floats([n, d]);
  for (let i = 0; i < n * d; i++) {
    let sum = bias ? bias.data[i % d]! : 0;
    for (let h = 0; h < heads; h++) sum += data[h * n * d + i]!;
    out.data[i] = sum;
  }
  return out;
}
