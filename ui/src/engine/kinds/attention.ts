/** Attention: heads, their scores, which of these are open, and what the shares of a row add up to. */

import { headWidth } from "../../core/config";
import { axisLength, floats, row, size, type Floats } from "../../core/tensor";
import { sum } from "../../core/vectors";
import { isOpen, maskOf, setting } from "../functions";
import { fail, lastRow, ofInput, ofVector, products, same, stackOf, taken, type Call, type Context, type OpKind } from "../kind";
import type { Op } from "../../core/protocol";
import { dotRows, rows, transposed, weighedRows } from "../products";
import { eachRow } from "./norms";

export const ATTENTION = {
  split: {
    inputs: [1, 1],
    compute: split,
    needs: ({ op, index: [h, t, k], context }) => [ofInput(op, 0, [t!, h! * widthOf(op, context) + k!])],
    explain: taken,
    length: (op, axis, from, context) => axis === 0 ? setting(op, "heads") : axis === 1 ? from(0) : widthOf(op, context),
  },
  /** Each key or value head for every query head of its group. */
  repeat: {
    inputs: [1, 1],
    compute: repeat,
    needs: ({ op, index: [h, ...rest] }) => [ofInput(op, 0, [Math.floor(h! / setting(op, "times")), ...rest])],
    explain: taken,
    cellwise: true,
    length: (op, axis, from) => from(axis) * (axis === 0 ? setting(op, "times") : 1),
  },
  matmul_nt: {
    inputs: [2, 2],
    compute: (call) => matmul(call, true),
    needs: ({ op, index: [h, t, s] }) => [ofInput(op, 0, [h!, t!, null]), ofInput(op, 1, [h!, s!, null])],
    explain: (_, [q, k]) => ({ form: "products", products: products(q!, k!), bias: null }),
  },
  matmul: {
    inputs: [2, 2],
    compute: (call) => matmul(call, false),
    needs: ({ op, index: [h, t, k] }) => [ofInput(op, 0, [h!, t!, null]), ofInput(op, 1, [h!, null, k!])],
    explain: (_, [weights, v]) => ({ form: "products", products: products(weights!, v!), bias: null }),
  },
  mask: {
    inputs: [1, 1],
    compute: mask,
    needs: same,
    explain: ({ op, index, context }, [of]) => {
      const { causal, window } = maskOf(op, context.plan.masks), query = index.at(-2)!, key = index.at(-1)!;
      return { form: "mask", of: of!.term(), open: isOpen({ causal, window }, query, key), causal, window, query, key };
    },
    cellwise: true,
  },
  softmax: {
    inputs: [1, 1],
    compute: softmax,
    needs: (cell) => [...lastRow(cell), ...ofVector(cell.op, 0)],
    explain: ({ index }, [row, sinks]) => {
      const sink = sinks ? [sinks.term(index[0])] : [], terms = [...row!.terms(), ...sink];
      const largest = Math.max(...terms.map((term) => term.value));
      const cells = terms.map((of) => ({ of, exp: Math.exp(of.value - largest) }));
      return { form: "share", cells, at: index.at(-1)!, largest, total: sum(cells.map((cell) => cell.exp)) };
    },
  },
} satisfies Record<string, OpKind>;

/** The width of a head, which the op names where it is not that of queries. */
function widthOf(op: Op, context: Context): number {
  return setting(op, "width", headWidth(stackOf(op, context)));
}

/** t (h k) -> h t k */
function split({ op, x: [value] }: Call): Floats {
  const heads = setting(op, "heads"), n = axisLength(value!, 0), width = axisLength(value!, 1) / heads;
  const out = floats([heads, n, width]);
  for (let h = 0; h < heads; h++) {
    for (let t = 0; t < n; t++) out.data.set(row(value!, t).subarray(h * width, (h + 1) * width), (h * n + t) * width);
  }
  return out;
}

function repeat({ op, x: [value] }: Call): Floats {
  const times = setting(op, "times"), [heads, ...rest] = value!.shape as [number, ...number[]];
  const out = floats([heads * times, ...rest]), each = size(rest);
  for (let h = 0; h < heads * times; h++) out.data.set(row(value!, Math.floor(h / times)), h * each);
  return out;
}

/** … t n times … m n (`turned`), or times … n m. */
function matmul({ op, x }: Call, turned: boolean): Floats {
  const [a, b] = x as [Floats, Floats], n = axisLength(a, -2), width = axisLength(a, -1);
  const m = axisLength(b, turned ? -2 : -1), count = size(a.shape.slice(0, -2));
  if (b.data.length !== count * m * width) fail(op, `shapes [${a.shape}] and [${b.shape}] do not fit`);
  const out = floats([...a.shape.slice(0, -1), m]);
  for (let h = 0; h < count; h++) {
    const start = h * m * width;
    if (n === 1 && !turned) {
      weighedRows(rows(out.data, m, h * m), rows(a.data, width, h * width), rows(b.data, m, start), width, m);
      continue;
    }
    const right = turned ? rows(b.data, width, start) : rows(transposed(b.data, start, width, m), width);
    dotRows(rows(out.data, m, h * n * m), rows(a.data, width, h * n * width), right, n, m, width);
  }
  return out;
}

function mask({ op, x: [scores], masks, from = 0 }: Call): Floats {
  const { shape, data } = scores!, n = axisLength(scores!, -2), m = axisLength(scores!, -1), rule = maskOf(op, masks);
  return floats(shape, data.map((x, i) => (isOpen(rule, from + (Math.floor(i / m) % n), i % m) ? x : -Infinity)));
}

/** Of each row, and of the sink of its head if there are some. */
function softmax(call: Call): Floats {
  const sinks = call.w[0]?.data, queries = axisLength(call.x[0]!, -2);
  return eachRow(call, axisLength(call.x[0]!, -1), (x, out, at, i) => {
    const sink = sinks ? sinks[Math.floor(i / queries)]! : -Infinity;
    let most = sink;
    for (let j = 0; j < x.length; j++) most = Math.max(most, x[j]!);
    if (most === -Infinity) fail(call.op, "every cell of a row is closed; leave one open");
    let sum = Math.exp(sink - most);
    for (let j = 0; j < x.length; j++) sum += Math.exp(x[j]! - most);
    for (let j = 0; j < x.length; j++) out[at + j] = Math.exp(x[j]! - most) / sum;
  });
}
