/** Where a token is: waves that are added to its vector, a turn of queries and keys, a bias of the scores. */

import type { Op } from "../../core/protocol";
import { axisLength, floats, row, type Floats } from "../../core/tensor";
import type { Form, Term } from "../forms";
import { setting } from "../functions";
import { ofInput, ofWeight, readAt, stackOf, weight, type Call, type Cell, type Given, type OpKind } from "../kind";
import { eachRow } from "./norms";

export const POSITIONS = {
  sinusoid: {
    inputs: [1, 1],
    compute: sinusoid,
    needs: () => [],
    explain: (cell) => {
      const read = readAt(cell, cell.index[0]!), { kind, frequency } = wave(cell.op, cell.index[1]!);
      const position = { ...read, value: read.value + first(cell.op) };
      return { form: "wave", wave: kind, position, frequency, angle: position.value * frequency };
    },
  },
  rotate: {
    inputs: [2, 2],
    compute: rotate,
    needs: ({ op, index }) => pairOf(op, index).map((component) => ofInput(op, 0, [...index.slice(0, -1), component])),
    explain: (cell, [first, second]) => {
      const { op, index } = cell, [pair] = pairOf(op, index);
      if (!second) return { form: "taken", of: first!.term(), by: null };
      const turnedBy = (position: number): number => turn(op, position, pair!);
      return rotation(cell, [first!, second], pair!, { frequency: op.numbers![pair!]!, turnedBy, magnitude: setting(op, "magnitude") });
    },
  },
  relative_bias: {
    inputs: [1, 1],
    pairwise: true,
    compute: (call) => {
      const table = weight(call, 0), heads = axisLength(table, 1);
      return biases(call, heads, (head, distance) => table.data[bucket(call.op, distance) * heads + head]!);
    },
    needs: (cell) => [ofWeight(cell.op, 0, [bucket(cell.op, between(cell).distance), null])],
    explain: (cell, [row]) => {
      const pair = between(cell);
      return { form: "bucket", of: row!.term(cell.index[0]), ...pair, bucket: bucket(cell.op, pair.distance) };
    },
  },
  rows: {
    inputs: [0, 0],
    compute: (call) => weight(call, 0),
    needs: ({ op, index }) => [ofWeight(op, 0, [index[0]!, null])],
    explain: ({ index }, [row]) => ({ form: "taken", of: row!.term(index[1]), by: null }),
    length: (op, _, __, context) => stackOf(op, context).d_model,
  },
  /** h t r -> h t s: of each query's (or each key's) row, the number of the distance. */
  by_distance: {
    inputs: [2, 2],
    compute: byDistance,
    needs: (cell) => {
      const { index: [h, t, s], op } = cell;
      return [ofInput(op, 0, [h!, op.how === "query" ? t! : s!, distanceRow(op, -between(cell).distance)])];
    },
    explain: (cell, [of]) => {
      const pair = between(cell);
      return { form: "bucket", of: of!.term(), ...pair, bucket: distanceRow(cell.op, -pair.distance) };
    },
    length: (_, axis, from) => from(axis === 2 ? 1 : axis),
  },
  alibi: {
    inputs: [1, 1],
    pairwise: true,
    compute: (call) => {
      const slopes = call.op.numbers ?? [];
      return biases(call, slopes.length, (head, distance) => -slopes[head]! * Math.abs(distance));
    },
    needs: () => [],
    explain: (cell) => ({ form: "slope", slope: cell.op.numbers![cell.index[0]!]!, ...between(cell) }),
  },
} satisfies Record<string, OpKind>;

const f32 = Math.fround;

// --- added to vectors ------------------------------------------------------------------------------------------------

function sinusoid({ op, x: [positions] }: Call): Floats {
  const width = setting(op, "width"), waves = Array.from({ length: width }, (_, i) => wave(op, i));
  const out = floats([positions!.data.length, width]);
  positions!.data.forEach((position, t) => {
    waves.forEach(({ kind, frequency }, i) => (out.data[t * width + i] = Math[kind]((position + first(op)) * frequency)));
  });
  return out;
}

/** The number of the first position. */
function first(op: Op): number {
  return op.by?.offset ?? 0;
}

/** Component i of a position's waves: sine or cosine of position * base^(-2j/width). */
export function wave(op: Op, component: number): { kind: "sin" | "cos"; frequency: number } {
  const width = setting(op, "width"), half = Math.floor(width / 2);
  const together = op.how === "interleaved";
  const pair = together ? component >> 1 : component % half;
  const isSine = together ? component % 2 === 0 : component < half;
  return { kind: isSine ? "sin" : "cos", frequency: setting(op, "base") ** ((-2 * pair) / width) };
}

// --- turns -----------------------------------------------------------------------------------------------------------

/** … t k, turned by the angle of each position; component i goes with component i + n. */
function rotate(call: Call): Floats {
  const { op, x: [value, where] } = call, n = op.numbers?.length ?? 0;
  const by = setting(op, "magnitude"), positions = where!.data;
  return eachRow(call, axisLength(value!, -1), (x, out, at, i) => {
    const position = positions[i % positions.length]!;
    out.set(x.subarray(2 * n), at + 2 * n);
    turnPairs(x, out, at, n, (pair) => turn(op, position, pair), by);
  });
}

/** Turns the first 2n components of a row, component i together with i + n. */
export function turnPairs(x: Float32Array, out: Float32Array, at: number, n: number, angleOf: (pair: number) => number, by = 1): void {
  for (let j = 0; j < n; j++) {
    const angle = angleOf(j), cos = Math.cos(angle) * by, sin = Math.sin(angle) * by;
    out[at + j] = x[j]! * cos - x[j + n]! * sin;
    out[at + j + n] = x[j + n]! * cos + x[j]! * sin;
  }
}

/** How a component of a turned pair was made. */
export function rotation(
  cell: Cell, [first, second]: [Given, Given], pair: number,
  { frequency, turnedBy, magnitude }: { frequency: number; turnedBy: (position: number) => number; magnitude: number },
): Form {
  const isFirst = cell.index.at(-1) === pair, position = readAt(cell, cell.index.at(-2)!), angle = turnedBy(position.value);
  const [of, partner] = isFirst ? [first.term(), second.term()] : [second.term(), first.term()];
  return {
    form: "rotation", of, partner, sign: isFirst ? -1 : 1, position, frequency, angle, magnitude,
    cos: Math.cos(angle) * magnitude, sin: Math.sin(angle) * magnitude,
  };
}

/** The angle by which a pair of components turns. */
function turn(op: Op, position: number, pair: number): number {
  return f32(f32(position) * f32(op.numbers![pair]!));
}

/** The components that turn together; one alone where it does not turn. */
function pairOf(op: Op, index: readonly number[]): number[] {
  const n = op.numbers?.length ?? 0, component = index.at(-1)!;
  return component >= 2 * n ? [component] : [component % n, (component % n) + n];
}

// --- added to scores -------------------------------------------------------------------------------------------------

function biases({ x, from = 0 }: Call, heads: number, bias: (head: number, distance: number) => number): Floats {
  const keys = x[0]!.data, queries = keys.subarray(from), out = floats([heads, queries.length, keys.length]);
  for (let h = 0, at = 0; h < heads; h++) {
    for (const query of queries) for (const key of keys) out.data[at++] = bias(h, key - query);
  }
  return out;
}

function between(cell: Cell): { query: Term; key: Term; distance: number } {
  const query = readAt(cell, cell.index[1]!), key = readAt(cell, cell.index[2]!);
  return { query, key, distance: key.value - query.value };
}

/** The row of a table of relative biases for a distance (key - query): exact when near, logarithmic up to the largest
 *  distance, one for all beyond. In float32, as it was trained, because a bucket has sharp edges. */
export function bucket(op: Op, distance: number): number {
  const past = op.how === "past", n = setting(op, "buckets") / (past ? 1 : 2);
  const first = !past && distance > 0 ? n : 0;
  const away = past ? Math.max(-distance, 0) : Math.abs(distance);
  const exact = Math.floor(n / 2);
  if (away < exact) return first + away;
  const growth = f32(Math.log(setting(op, "distance") / exact));
  const share = f32(f32(Math.log(f32(away / exact))) / growth);
  return first + Math.min(exact + Math.trunc(f32(share * (n - exact))), n - 1);
}

/** The row of the vectors of distances for query - key, as `bucket` in float32. */
export function distanceRow(op: Op, distance: number): number {
  const buckets = setting(op, "buckets"), longest = setting(op, "distance"), reach = buckets || longest;
  const exact = Math.floor(buckets / 2), away = Math.abs(distance);
  if (buckets && away > exact) {
    const growth = f32(Math.log(f32((longest - 1) / exact)));
    const share = f32(f32(Math.log(f32(away / exact))) / growth);
    distance = Math.sign(distance) * (Math.ceil(f32(share * (exact - 1))) + exact);
  }
  return Math.min(Math.max(distance + reach, 0), 2 * reach - 1);
}

function byDistance({ op, x: [products, where] }: Call): Floats {
  const positions = where!.data, n = positions.length, heads = axisLength(products!, 0), out = floats([heads, n, n]);
  for (let h = 0, at = 0; h < heads; h++) {
    for (let t = 0; t < n; t++) {
      for (let s = 0; s < n; s++) {
        const number = distanceRow(op, positions[t]! - positions[s]!);
        out.data[at++] = row(products!, h, op.how === "query" ? t : s)[number]!;
      }
    }
  }
  return out;
}
