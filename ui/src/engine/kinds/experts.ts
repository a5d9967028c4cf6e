/** A mixture of experts: which of them are chosen, what each makes of a position, and its share of the result. */

import { axisLength, floats, type Floats } from "../../core/tensor";
import { sum } from "../../core/vectors";
import { setting } from "../functions";
import { fail, lastRow, ofInput, ofVector, ofWeight, products, weight, type Call, type OpKind } from "../kind";
import { byRows } from "../matrix";
import { rows } from "../products";
import { eachRow } from "./norms";
import type { Op } from "../../core/protocol";

export const EXPERTS = {
  /** 1 for the largest numbers of a row, else 0; a vector may be added for the comparison alone. */
  top_k: {
    inputs: [1, 1],
    compute: (call) => eachRow(call, axisLength(call.x[0]!, -1), (x, out, at) =>
      out.set(marked(call.op, ranked(call.op, Array.from(x), call.w[0]?.data)), at)),
    needs: (cell) => [...lastRow(cell), ...ofVector(cell.op, 0)],
    explain: ({ op, index }, [row, added]) => {
      const terms = row!.terms(), values = terms.map((term) => term.value);
      const numbers = ranked(op, values, added?.terms().map((term) => term.value)), at = index.at(-1)!;
      const cells = terms.map((of, i) => ({ of, ranked: numbers[i]! }));
      return { form: "chosen", cells, at, k: setting(op, "k"), rank: rankOf(numbers, at), chosen: marked(op, numbers)[at] === 1 };
    },
  },
  /** Each number of a row over the sum of the row, over 1 where that is 0. */
  normalise: {
    inputs: [1, 1],
    compute: (call) => eachRow(call, axisLength(call.x[0]!, -1), (x, out, at) => {
      let total = 0;
      for (let j = 0; j < x.length; j++) total += x[j]!;
      for (let j = 0; j < x.length; j++) out[at + j] = x[j]! / (total || 1);
    }),
    needs: lastRow,
    explain: ({ index }, [row]) => {
      const terms = row!.terms();
      return { form: "part", terms, at: index.at(-1)!, total: sum(terms.map((term) => term.value)) || 1 };
    },
  },
  /** One linear map for each expert: matrices, then biases. */
  each_linear: {
    inputs: [1, 1],
    compute: eachLinear,
    needs: ({ op, index: [e, t, f] }) => {
      const n = setting(op, "n"), bias = (op.weights?.length ?? 0) > n ? [ofWeight(op, n + e!, [null])] : [];
      return [ofInput(op, 0, isOfEach(op) ? [e!, t!, null] : [t!, null]), ofWeight(op, e!, [f!, null]), ...bias];
    },
    explain: ({ index: [, , f] }, [x, w, b]) => ({ form: "products", products: products(x!, w!), bias: b?.term(f) ?? null }),
    length: (op, axis, from) => (axis === 0 ? setting(op, "n") : from(isOfEach(op) ? axis : axis - 1)),
  },
  /** A vector of each position, or of each expert at each position, times one number. */
  weigh: {
    inputs: [2, 2],
    compute: weigh,
    needs: ({ op, index }) =>
      index.length === 3
        ? [ofInput(op, 0, index), ofInput(op, 1, [index[1]!, index[0]!])]
        : [ofInput(op, 0, index), ofInput(op, 1, [index[0]!, 0])],
    explain: (_, [of, share]) => ({ form: "product", left: of!.term(), right: share!.term() }),
  },
} satisfies Record<string, OpKind>;

/** What is compared: -Infinity outside the best groups. */
function ranked(op: Op, x: number[], added?: ArrayLike<number>): number[] {
  const found = x.map((value, i) => Math.fround(value + (added ? added[i]! : 0)));
  const groups = setting(op, "groups", 0);
  if (!groups) return found;
  const size = x.length / groups, best = setting(op, "best");
  const sums = Array.from({ length: groups }, (_, g) => {
    const largest = found.slice(g * size, (g + 1) * size).sort((a, b) => b - a);
    return sum(largest.slice(0, best));
  });
  return found.map((value, i) => (rankOf(sums, Math.floor(i / size)) < setting(op, "kept") ? value : -Infinity));
}

/** How many numbers are larger, or equal and before it. */
function rankOf(numbers: readonly number[], at: number): number {
  const own = numbers[at]!;
  return numbers.filter((other, i) => other > own || (other === own && i < at)).length;
}

function marked(op: Op, numbers: readonly number[]): Float32Array {
  const k = setting(op, "k");
  return Float32Array.from(numbers, (_, i) => (rankOf(numbers, i) < k ? 1 : 0));
}

/** Whether each expert reads rows of its own. */
function isOfEach(op: Op): boolean {
  return setting(op, "each") === 1;
}

/** t d or e t d -> e t f */
function eachLinear(call: Call): Floats {
  const n = setting(call.op, "n"), x = call.x[0]!, t = axisLength(x, -2), width = axisLength(x, -1);
  const m = axisLength(weight(call, 0), 0), each = x.shape.length === 3 ? t * width : 0;
  if (axisLength(weight(call, 0), 1) !== width) fail(call.op, `shapes [${x.shape}] and [${weight(call, 0).shape}] do not fit`);
  const out = floats([n, t, m]);
  for (let e = 0; e < n; e++) {
    byRows(rows(out.data, m, e * t * m), rows(x.data, width, e * each), weight(call, e), t, { from: 0, width }, call.w[n + e]?.data);
  }
  return out;
}

function weigh({ x: [value, shares] }: Call): Floats {
  const { shape, data } = value!, t = axisLength(value!, -2), width = axisLength(value!, -1);
  const out = floats(shape), n = axisLength(shares!, -1);
  for (let i = 0; i < data.length; i++) {
    const row = Math.floor(i / width), e = shape.length === 3 ? Math.floor(row / t) : 0;
    out.data[i] = data[i]! * shares!.data[(row % t) * n + e]!;
  }
  return out;
}
