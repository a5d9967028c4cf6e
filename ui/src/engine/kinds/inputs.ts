/** What a stack reads, and what a head takes of its states. */

import { axisLength, floats, row, type Floats } from "../../core/tensor";
import { setting } from "../functions";
import {
  fail, numbersAt, ofInput, ofWeight, readAt, stackName, stackOf, taken, weight, type Call, type Cell, type OpKind,
} from "../kind";
import { transposed } from "../products";
import { average } from "./norms";

export const INPUTS = {
  lookup: {
    inputs: [1, 1],
    compute: lookup,
    needs: (cell) => [ofWeight(cell.op, 0, [readAt(cell, cell.index[0]!).value + offset(cell), null])],
    explain: (cell, [row]) => ({ form: "taken", of: row!.term(cell.index[1]), by: readAt(cell, cell.index[0]!) }),
  },
  unfold: {
    inputs: [1, 1],
    compute: unfold,
    needs: (cell) => [ofInput(cell.op, 0, pixelOf(cell))],
    explain: taken,
    length: (op, _, from) => from(0) * setting(op, "size") ** 2,
  },
  prepend: {
    inputs: [1, 1],
    compute: prepend,
    needs: ({ op, index: [t, d] }) => [t === 0 ? ofWeight(op, 0, [null]) : ofInput(op, 0, [t! - 1, d!])],
    explain: ({ index: [t, d] }, [of]) => ({ form: "taken", of: of!.term(t === 0 ? d : 0), by: null }),
  },
  pool: {
    inputs: [1, 1],
    compute: pool,
    needs: (cell) => [ofInput(cell.op, 0, [pooledRow(cell), cell.index[0]!])],
    explain: (cell, given) =>
      cell.op.how === "mean" ? { form: "mean", terms: given[0]!.terms() } : taken(cell, given),
    length: (_, __, from) => from(1),
  },
} satisfies Record<string, OpKind>;

function offset({ op }: Pick<Call, "op">): number {
  return setting(op, "offset", 0);
}

function lookup(call: Call): Floats {
  const ids = call.x[0]!.data, table = weight(call, 0), n = axisLength(table, 0), width = axisLength(table, 1);
  const out = floats([ids.length, width]);
  ids.forEach((id, i) => {
    const at = id + offset(call);
    if (!(at >= 0 && at < n)) fail(call.op, `row ${at} is outside 0..${n - 1}`);
    out.data.set(row(table, at), i * width);
  });
  return out;
}

/** c y x -> t (c y x): the pixels of each patch in a row. */
function unfold({ op, x: [image] }: Call): Floats {
  const n = setting(op, "size"), [channels, height, width] = image!.shape as [number, number, number];
  const out = floats([(height / n) * (width / n), channels * n * n]);
  let at = 0;
  for (let top = 0; top < height; top += n) {
    for (let left = 0; left < width; left += n) {
      for (let c = 0; c < channels; c++) {
        for (let y = top; y < top + n; y++, at += n) out.data.set(row(image!, c, y).subarray(left, left + n), at);
      }
    }
  }
  return out;
}

function pixelOf({ op, index: [patch, j], context }: Cell): number[] {
  const n = setting(op, "size"), columns = stackOf(op, context).input.image_size! / n;
  const top = Math.floor(patch! / columns) * n, left = (patch! % columns) * n;
  return [Math.floor(j! / (n * n)), top + (Math.floor(j! / n) % n), left + (j! % n)];
}

function prepend(call: Call): Floats {
  const first = weight(call, 0).data, { shape: [n, d], data } = call.x[0]!;
  const out = floats([n! + 1, d!]);
  out.data.set(first);
  out.data.set(data, first.length);
  return out;
}

/** t d -> d */
function pool({ op, x: [states] }: Call): Floats {
  const { shape, data } = states!, [n, d] = shape as [number, number];
  if (op.how === "first") return floats([d], data.slice(0, d));
  if (op.how === "last") return floats([d], data.slice((n - 1) * d));
  if (op.how !== "mean") fail(op, `states are not pooled by "${op.how}"`);
  const columns = transposed(data, 0, n, d);
  return floats([d], Float32Array.from({ length: d }, (_, i) => average(columns.subarray(i * n, (i + 1) * n))));
}

function pooledRow({ op, context }: Cell): number | null {
  const positions = numbersAt(`${stackName(op.inputs?.[0] ?? "")}.positions`, context);
  return op.how === "mean" ? null : op.how === "last" ? positions.length - 1 : 0;
}
