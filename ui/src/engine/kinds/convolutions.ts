/** Convolutions over time, in groups of channels. */

import type { Op } from "../../core/protocol";
import { axisLength, floats, type Floats } from "../../core/tensor";
import type { Product } from "../forms";
import { setting } from "../functions";
import { numbersAt, ofInput, ofVector, ofWeight, stackName, stackOf, weight, type Call, type Cell, type OpKind } from "../kind";

export const CONVOLUTIONS = {
  convolve: {
    inputs: [1, 1],
    compute: convolve,
    needs: (cell) => [
      ofWeight(cell.op, 0, [cell.index[1]!, null]), ...ofVector(cell.op, 1),
      ...read(cell).map(([, at]) => ofInput(cell.op, 0, [at, setting(cell.op, "apart", 0) ? cell.index[1]! : null])),
    ],
    explain: (cell, [row, ...rest]) => {
      const width = setting(cell.op, "width"), channels = row!.length / width, d = cell.index[1]!;
      const bias = cell.op.weights?.[1] ? rest.shift()! : null;
      const first = rest[0]!.length === channels ? 0 : d - (d % channels);
      const products = read(cell).flatMap(([k], i): Product[] => Array.from({ length: channels }, (_, c) => {
        const left = rest[i]!.term(first + c), right = row!.term(c * width + k);
        return { left, right, product: left.value * right.value };
      }));
      return { form: "products", products, bias: bias?.term(d) ?? null };
    },
    length: (op, axis, from, context) => {
      if (axis === 0) return lengthOf(op, from(0));
      const number = /convolutions\.(\d+)/.exec(op.out)?.[1];
      return number ? stackOf(op, context).input.convolutions![Number(number)]!.channels : from(1);
    },
  },
} satisfies Record<string, OpKind>;

/** How many vectors it makes of n. */
function lengthOf(op: Op, n: number): number {
  return Math.floor((n + setting(op, "before") + setting(op, "after") - setting(op, "width")) / setting(op, "step")) + 1;
}

/** The columns of the kernel that meet a vector, and where that is. */
function read({ op, index: [t], context }: Cell): [number, number][] {
  const before = setting(op, "before"), first = t! * setting(op, "step") - before;
  const n = before ? numbersAt(`${stackName(op.out)}.positions`, context).length : Infinity;
  const all = Array.from({ length: setting(op, "width") }, (_, k): [number, number] => [k, first + k]);
  return all.filter(([, at]) => at >= 0 && at < n);
}

/** n c -> m d */
function convolve(call: Call): Floats {
  const { shape: [n, m], data } = call.x[0]!, kernel = weight(call, 0), d = axisLength(kernel, 0);
  const [width, step, before, groups] = ["width", "step", "before", "groups"].map((name) => setting(call.op, name)) as
    [number, number, number, number];
  const length = lengthOf(call.op, n!), channels = m! / groups;
  const out = floats([length, d]);
  for (let t = 0; t < length; t++) {
    for (let i = 0; i < d; i++) {
      const first = Math.floor(i / (d / groups)) * channels;
      let sum = call.w[1]?.data[i] ?? 0;
      for (let k = 0; k < width; k++) {
        const at = t * step + k - before;
        if (at < 0 || at >= n!) continue;
        for (let c = 0; c < channels; c++) sum += data[at * m! + first + c]! * kernel.data[(i * channels + c) * width + k]!;
      }
      out.data[t * d + i] = sum;
    }
  }
  return out;
}
