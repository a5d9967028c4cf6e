/** Positions in a grid of patches: vectors that are interpolated for another grid, and turns by row and column. */

import type { Op } from "../../core/protocol";
import { axisLength, floats, type Floats } from "../../core/tensor";
import { setting } from "../functions";
import { ofInput, ofWeight, stackOf, weight, type Call, type OpKind } from "../kind";
import { eachRow } from "./norms";
import { rotation, turnPairs } from "./positions";

export const GRIDS = {
  /** The vectors of a grid of patches, interpolated for another grid; none for registers. */
  spread: {
    inputs: [0, 0],
    compute: spread,
    needs: ({ op, index: [t] }) => shares(op, t!).map(([row]) => ofWeight(op, 0, [row, null])),
    explain: ({ op, index: [t, d] }, given) => {
      const found = shares(op, t!), [only] = given;
      if (only && found.length === 1) return { form: "taken", of: only.term(d), by: null };
      const products = found.map(([, value], i) => {
        const left = { kind: "number" as const, name: op.out, index: [t!], value }, right = given[i]!.term(d);
        return { left, right, product: value * right.value };
      });
      return { form: "products", products, bias: null };
    },
    length: (op, axis, _, context) => (axis === 0 ? cellsOf(op) : stackOf(op, context).d_model),
  },
  rotate_grid: {
    inputs: [2, 2],
    compute: rotate,
    needs: ({ op, index }) => pairOf(op, index).map((component) => ofInput(op, 0, [...index.slice(0, -1), component])),
    explain: (cell, [first, second]) => {
      const { op, index } = cell, [pair] = pairOf(op, index);
      const turnedBy = (position: number): number => turn(op, position, pair!);
      return rotation(cell, [first!, second!], pair!, { frequency: frequencyOf(op, pair!), turnedBy, magnitude: 1 });
    },
  },
} satisfies Record<string, OpKind>;

// --- vectors ---------------------------------------------------------------------------------------------------------

function spread(call: Call): Floats {
  const { op } = call, table = weight(call, 0), width = axisLength(table, 1);
  const n = cellsOf(op), out = floats([n, width]);
  for (let t = 0; t < n; t++) {
    const found = shares(op, t);
    for (let d = 0; d < width; d++) {
      let sum = 0;
      for (const [row, share] of found) sum += share * table.data[row * width + d]!;
      out.data[t * width + d] = sum;
    }
  }
  return out;
}

function cellsOf(op: Op): number {
  return setting(op, "first") + setting(op, "registers") + setting(op, "to") ** 2;
}

/** The rows of the table that a cell is made of, each with its share. */
function shares(op: Op, cell: number): [row: number, share: number][] {
  const first = setting(op, "first"), from = setting(op, "from"), to = setting(op, "to");
  const patch = cell - first - setting(op, "registers");
  if (cell < first) return [[cell, 1]];
  if (patch < 0) return [];
  if (from === to) return [[first + patch, 1]];
  const across = cubic(op, patch % to);
  return cubic(op, Math.floor(patch / to)).flatMap(([y, a]) => across.map(([x, b]): [number, number] => [first + y * from + x, a * b]));
}

/** The cells of a line that one of a line of another length is made of, by cubic convolution (Keys 1981). */
function cubic(op: Op, at: number): [cell: number, share: number][] {
  const from = setting(op, "from"), antialias = setting(op, "antialias") > 0, scale = from / setting(op, "to");
  const centre = (at + 0.5) * scale, wide = antialias ? Math.max(scale, 1) : 1, found = new Map<number, number>();
  const start = antialias ? Math.max(Math.trunc(centre - 2 * wide + 0.5), 0) : Math.floor(centre - 0.5) - 1;
  const end = antialias ? Math.min(Math.trunc(centre + 2 * wide + 0.5), from) : start + 4;
  for (let i = start; i < end; i++) {
    const cell = Math.min(Math.max(i, 0), from - 1);
    found.set(cell, (found.get(cell) ?? 0) + kernel((i + 0.5 - centre) / wide, antialias ? -0.5 : -0.75));
  }
  const total = antialias ? [...found.values()].reduce((a, b) => a + b, 0) : 1;
  return [...found].map(([cell, share]) => [cell, share / total]);
}

function kernel(x: number, a: number): number {
  const d = Math.abs(x);
  if (d < 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? (((d - 5) * d + 8) * d - 4) * a : 0;
}

// --- turns -----------------------------------------------------------------------------------------------------------

/** … t k; component i goes with component i + k/2. */
function rotate(call: Call): Floats {
  const [value, where] = call.x, cells = where!.data, n = axisLength(value!, -1) / 2;
  return eachRow(call, 2 * n, (x, out, at, i) => turnPairs(x, out, at, n, (pair) => turn(call.op, cells[i % cells.length]!, pair)));
}

/** The angle of a pair: the first half of the pairs turns by a patch's row, the other by its column. */
function turn(op: Op, cell: number, pair: number): number {
  const side = setting(op, "side"), patch = cell - setting(op, "first"), byRow = pair < op.numbers!.length;
  const place = byRow ? Math.floor(patch / side) : patch % side;
  return patch < 0 ? 0 : ((2 * (place + 0.5)) / side - 1) * frequencyOf(op, pair);
}

function frequencyOf(op: Op, pair: number): number {
  return op.numbers![pair % op.numbers!.length]!;
}

function pairOf(op: Op, index: readonly number[]): number[] {
  const n = 2 * op.numbers!.length, pair = index.at(-1)! % n;
  return [pair, pair + n];
}
