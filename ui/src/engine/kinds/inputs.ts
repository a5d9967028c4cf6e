/** What a stack reads, and what a head takes of its states. */

import { headWidth } from "../../core/config";
import { axisLength, floats, row, type Floats } from "../../core/tensor";
import type { Op } from "../../core/protocol";
import { setting, unmasked } from "../functions";
import { fail, numbersAt, ofInput, ofWeight, readAt, stackName, stackOf, taken, weight, type Call, type Cell, type Need, type OpKind } from "../kind";
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
  unfold_frames: {
    inputs: [1, 1],
    compute: join,
    needs: (cell) => {
      const [at, c] = joinedFrom(cell), index = [at, c];
      return at < 0 || at >= framesOf(cell) ? [] : [ofInput(cell.op, 0, index)];
    },
    explain: (cell, given) => (given.length ? taken(cell, given) : { form: "sum", terms: [] }),
    length: (op, axis, from) =>
      axis === 0 ? Math.floor((from(0) - 1) / setting(op, "step")) + 1 : from(1) * setting(op, "width"),
  },
  /** What each vector is multiplied by: 0 for the mask token. */
  unmasked: {
    inputs: [1, 1],
    compute: ({ op, x: [ids] }) => {
      const settings = counted(op, ids!.data);
      return floats([ids!.data.length, 1], Float32Array.from(ids!.data, (id) => unmasked(id, settings)));
    },
    needs: () => [],
    explain: (cell) => {
      const settings = counted(cell.op, numbersAt(cell.op.inputs![0]!, cell.context));
      return { form: "function", name: cell.op.op, of: readAt(cell, cell.index[0]!), settings };
    },
    length: () => 1,
  },
  prepend: {
    inputs: [1, 1],
    compute: prepend,
    needs: (cell) => [prepended(cell)],
    explain: (cell, [of]) =>
      ({ form: "taken", of: of!.term(prepended(cell).kind === "weight" ? cell.index[1] : 0), by: null }),
  },
  pool: {
    inputs: [1, 1],
    compute: pool,
    needs: (cell) => [ofInput(cell.op, 0, [pooledRow(cell), cell.index[0]!])],
    explain: (cell, given) =>
      cell.op.how === "mean" ? { form: "mean", terms: given[0]!.terms().slice(skips(cell)) } : taken(cell, given),
    length: (_, __, from) => from(1),
  },
  /** A learned vector. */
  learned: {
    inputs: [1, 1],
    compute: (call) => weight(call, 0),
    needs: ({ op, index: [t] }) => [ofWeight(op, 0, [t!, null])],
    explain: ({ index: [, d] }, [row]) => ({ form: "taken", of: row!.term(d), by: null }),
    length: (op, axis, _, context) => (axis === 0 ? 1 : stackOf(op, context).d_model),
  },
  /** Two vectors, one behind the other: of states, or in each head. */
  join: {
    inputs: [2, 2],
    compute: ({ x: [a, b] }) => {
      const n = axisLength(a!, -1), m = axisLength(b!, -1), out = floats([...a!.shape.slice(0, -1), n + m]);
      for (let i = 0, j = 0; i < a!.data.length; i += n, j += m) {
        out.data.set(a!.data.subarray(i, i + n), i + j);
        out.data.set(b!.data.subarray(j, j + m), i + j + n);
      }
      return out;
    },
    needs: ({ op, index, context }) => {
      const d = index.at(-1)! - setting(op, "width", stackOf(op, context).d_model);
      return [d < 0 ? ofInput(op, 0, index as number[]) : ofInput(op, 1, [...index.slice(0, -1), d])];
    },
    explain: taken,
    length: (op, axis, from, context) =>
      axis === 2 ? headWidth(stackOf(op, context)) : op.by?.width ? from(axis) : 2 * from(0),
  },
} satisfies Record<string, OpKind>;

/** The settings of an op that leaves masks out, with how many tokens there are and how many of them are none. */
function counted(op: Op, ids: ArrayLike<number>): Record<string, number> {
  const mask = setting(op, "id"), others = Array.from(ids).filter((id) => id !== mask).length;
  return { ...op.by, others, tokens: ids.length };
}

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

/** n c -> n/step (c width): every step-th row with its neighbours, zeros beyond the ends. */
function join({ op, x: [value] }: Call): Floats {
  const { shape, data } = value!, [n, channels] = shape as [number, number];
  const width = setting(op, "width"), step = setting(op, "step"), m = Math.floor((n - 1) / step) + 1;
  const out = floats([m, channels * width]);
  for (let t = 0, to = 0; t < m; t++) {
    for (let c = 0; c < channels; c++) {
      for (let k = 0; k < width; k++, to++) {
        const at = t * step + k - Math.floor(width / 2);
        if (at >= 0 && at < n) out.data[to] = data[at * channels + c]!;
      }
    }
  }
  return out;
}

/** The row and the column that a number of a joined row is taken from. */
function joinedFrom({ op, index: [t, j] }: Cell): [number, number] {
  const width = setting(op, "width");
  return [t! * setting(op, "step") + (j! % width) - Math.floor(width / 2), Math.floor(j! / width)];
}

/** How many frames the stack reads, before every second one is left out. */
function framesOf({ op, context }: Cell): number {
  return Number(stackOf(op, context).input.n_frames);
}

/** Learned vectors, one below the other, above the input. */
function prepend(call: Call): Floats {
  const { shape: [n, d], data } = call.x[0]!, first = call.w.flatMap((vectors) => [...vectors.data]);
  const out = floats([n! + first.length / d!, d!]);
  out.data.set(first);
  out.data.set(data, first.length);
  return out;
}

/** The class token is one vector, the registers are a table. */
function prepended({ op, index: [t, d], context }: Cell): Need {
  const { class_token, n_registers } = stackOf(op, context).input;
  const classes = class_token === false ? 0 : 1, first = classes + (n_registers ?? 0);
  if (t! >= first) return ofInput(op, 0, [t! - first, d!]);
  return t! < classes ? ofWeight(op, 0, [null]) : ofWeight(op, classes, [t! - classes, null]);
}

/** t d -> d */
function pool({ op, x: [states] }: Call): Floats {
  const { shape, data } = states!, [n, d] = shape as [number, number];
  if (op.how === "first") return floats([d], data.slice(0, d));
  if (op.how === "second") return floats([d], data.slice(d, 2 * d));
  if (op.how === "last") return floats([d], data.slice((n - 1) * d));
  if (op.how !== "mean") fail(op, `states are not pooled by "${op.how}"`);
  const columns = transposed(data, 0, n, d);
  return floats([d], Float32Array.from({ length: d }, (_, i) => average(columns.subarray(i * n + skips({ op }), (i + 1) * n))));
}

function pooledRow({ op, context }: Cell): number | null {
  if (op.how === "first" || op.how === "second") return op.how === "first" ? 0 : 1;
  const positions = numbersAt(`${stackName(op.inputs?.[0] ?? "")}.positions`, context);
  return op.how === "last" ? positions.length - 1 : null;
}

/** How many states at the start a mean leaves out. */
function skips({ op }: Pick<Call, "op">): number {
  return setting(op, "skips", 0);
}
