/** Norms: the mean of a row, the inverse of its spread, and what they make of it. */

import type { Op } from "../../core/protocol";
import { length, sum } from "../../core/vectors";
import { axisLength, floats, type Floats } from "../../core/tensor";
import { setting } from "../functions";
import { lastRow, ofInput, ofVector, weight, type Call, type Cell, type Need, type OpKind } from "../kind";
import { transposed } from "../products";

export const NORMS = {
  mean: {
    inputs: [1, 1],
    compute: byColumns((call) => eachRow(call, 1, (x, out, i) => (out[i] = average(x)))),
    needs: line,
    explain: (_, [row]) => ({ form: "mean", terms: row!.terms() }),
  },
  rstd: {
    inputs: [1, 2],
    compute: byColumns(rstd),
    needs: (cell) => [...line(cell), ...centre(cell, 2)],
    explain: ({ op }, [row, mean]) => {
      const cells = row!.terms().map((of) => {
        const deviation = of.value - (mean?.term().value ?? 0);
        return { of, deviation, square: deviation * deviation };
      });
      const variance = sum(cells.map((cell) => cell.square)) / cells.length;
      return { form: "spread", cells, mean: mean?.term() ?? null, variance, eps: setting(op, "eps") };
    },
  },
  norm: {
    inputs: [2, 3],
    compute: norm,
    needs: (cell) => [ofInput(cell.op, 0, cell.index), ...centre(cell, 3), scalar(cell, -1), ...[0, 1].flatMap((i) => ofVector(cell.op, i))],
    explain: ({ op, index }, given) => {
      const [of, rstd, gain, shift] = op.inputs?.length === 3 ? given.filter((_, i) => i !== 1) : given;
      const mean = op.inputs?.length === 3 ? given[1]!.term() : null, last = index.at(-1);
      const centred = of!.term().value - (mean?.value ?? 0);
      return {
        form: "norm", of: of!.term(), mean, rstd: rstd!.term(), gain: gain!.term(last), shift: shift?.term(last) ?? null,
        centred, scaled: centred * rstd!.term().value,
      };
    },
  },
  /** x / |x|, or x / sqrt(|x|^2 + eps) */
  unit: {
    inputs: [1, 1],
    compute: (call) => eachRow(call, axisLength(call.x[0]!, -1), (x, out, at) => {
      const size = sizeOf(x, call.op);
      x.forEach((value, j) => (out[at + j] = value / size));
    }),
    needs: lastRow,
    explain: ({ op, index }, [row]) => {
      const terms = row!.terms();
      return { form: "part", terms, at: index.at(-1)!, total: sizeOf(terms.map((one) => one.value), op), squared: true };
    },
  },
} satisfies Record<string, OpKind>;

/** Puts the result of row i of the input, x, at a place in the output. */
type MakeRow = (x: Float32Array, out: Float32Array, at: number, i: number) => void;

/** Row by row, to rows of another width. */
export function eachRow({ x: [value] }: Call, width: number, make: MakeRow): Floats {
  const { shape, data } = value!, n = axisLength(value!, -1), out = floats([...shape.slice(0, -1), width]);
  for (let i = 0; i * n < data.length; i++) make(data.subarray(i * n, (i + 1) * n), out.data, i * width, i);
  return out;
}

export function average(x: Float32Array): number {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += x[i]!;
  return sum / x.length;
}

function rstd(call: Call): Floats {
  const eps = setting(call.op, "eps"), mean = call.x[1]?.data;
  return eachRow(call, 1, (x, out, i) => {
    const centre = mean ? mean[i]! : 0;
    let sum = 0;
    for (let j = 0; j < x.length; j++) sum += (x[j]! - centre) ** 2;
    out[i] = 1 / Math.sqrt(sum / x.length + eps);
  });
}

function norm(call: Call): Floats {
  const mean = call.x.length > 2 ? call.x[1]!.data : null, factor = call.x.at(-1)!.data;
  const gain = weight(call, 0).data, shift = call.w[1]?.data, down = columns(call.op);
  return eachRow(call, gain.length, (x, out, at, i) => {
    for (let j = 0; j < x.length; j++) {
      const k = down ? j : i, centre = mean ? mean[k]! : 0;
      out[at + j] = (x[j]! - centre) * factor[k]! * gain[j]! + (shift ? shift[j]! : 0);
    }
  });
}

/** One number of a row or a column, such as its rstd. */
function scalar({ op, index }: Cell, input: number): Need {
  return ofInput(op, input, columns(op) ? [0, index.at(-1)!] : [...index.slice(0, -1), 0]);
}

/** The length of a vector, for a division. */
function sizeOf(x: ArrayLike<number>, op: Op): number {
  return Math.max(Math.hypot(length(x), Math.sqrt(setting(op, "eps", 0))), 1e-12);
}

/** Whether an op normalises down the columns, not along the rows. */
function columns(op: Op): boolean {
  return op.how === "columns";
}

/** The row, or the column, that a number is made of. */
function line(cell: Cell): Need[] {
  return columns(cell.op) ? [ofInput(cell.op, 0, [null, cell.index.at(-1)!])] : lastRow(cell);
}

/** What works along rows, down the columns too. */
function byColumns(compute: (call: Call) => Floats): (call: Call) => Floats {
  const turned = (value: Floats): Floats => {
    const [n, m] = value.shape as [number, number];
    return floats([m, n], transposed(value.data, 0, n, m));
  };
  return (call) => columns(call.op) ? turned(compute({ ...call, x: call.x.map(turned) })) : compute(call);
}

/** The mean that is taken off, where the op has that many inputs. */
function centre(cell: Cell, inputs: number): Need[] {
  return cell.op.inputs?.length === inputs ? [scalar(cell, 1)] : [];
}
