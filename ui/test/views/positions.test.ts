import { describe, expect, it } from "vitest";
import type { Op } from "../../src/core/protocol";
import { cosine } from "../../src/core/vectors";
import { floats } from "../../src/core/tensor";
import { compute } from "../../src/engine/ops";
import { biasByDistance, scoreAt, turned, turnedBack, waves } from "../../src/views/position/positions";

const sines = (how: string): Op => ({ out: "encoder.embed.positions", op: "sinusoid", by: { base: 10_000, width: 6 }, how });
const rotate: Op = { out: "q", op: "rotate", numbers: [1, 0.1], by: { magnitude: 1.5 } };
const q = Float32Array.of(0.3, -1.2, 0.8, 2, 7), k = Float32Array.of(-0.5, 0.4, 1.1, -0.9, 2);

/** What the op adds to positions 0 to n - 1, row by row. */
const rowsOf = (op: Op, n: number): Float32Array => compute(op, [floats([n], Float32Array.from({ length: n }, (_, i) => i))], [], {}).data;

describe("waves", () => {
  it("pairs the sine and the cosine of a frequency in either layout", () => {
    expect(waves(sines("interleaved")).map(({ sin, cos }) => [sin, cos])).toEqual([[0, 1], [2, 3], [4, 5]]);
    expect(waves(sines("concatenated")).map(({ sin, cos }) => [sin, cos])).toEqual([[0, 3], [1, 4], [2, 5]]);
    expect(waves({ out: "x", op: "lookup" })).toEqual([]);
  });
  it("names components that hold these waves", () => {
    for (const how of ["interleaved", "concatenated"]) {
      const values = rowsOf(sines(how), 4);
      for (const { sin, cos, frequency } of waves(sines(how))) {
        expect(values[3 * 6 + sin]).toBeCloseTo(Math.sin(3 * frequency), 6);
        expect(values[3 * 6 + cos]).toBeCloseTo(Math.cos(3 * frequency), 6);
      }
    }
  });
});

it("compares sinusoidal positions by their distance alone", () => {
  const rows = rowsOf(sines("interleaved"), 9), width = rows.length / 9;
  const same = (i: number, j: number): number => cosine(rows.subarray(i * width, (i + 1) * width), rows.subarray(j * width, (j + 1) * width));
  for (let i = 0; i < 6; i++) expect(same(i, i + 3)).toBeCloseTo(same(0, 3), 5);
  expect(same(0, 0)).toBeCloseTo(1, 6);
});

describe("rotation", () => {
  it("is undone by turning back", () => {
    const back = turnedBack(rotate, turned(rotate, q, 11), 11);
    back.forEach((x, i) => expect(x).toBeCloseTo(q[i]!, 5));
  });
  it("leaves a score as it is where both move, and only there", () => {
    const here = scoreAt(rotate, q, k, 5, 2);
    expect(scoreAt(rotate, q, k, 105, 102)).toBeCloseTo(here, 4);
    expect(Math.abs(scoreAt(rotate, q, k, 105, 103) - here)).toBeGreaterThan(0.1);
  });
});

describe("biasByDistance", () => {
  it("falls with the distance to either side", () => {
    const [first, second] = biasByDistance({ out: "b", op: "alibi", numbers: [0.5, 0.25] }, 3, []);
    expect(first).toEqual([[-2, -1], [-1, -0.5], [0, -0], [1, -0.5], [2, -1]]);
    expect(second!.at(-1)).toEqual([2, -0.5]);
  });
  it("tells before from after where the table does", () => {
    const op: Op = { out: "b", op: "relative_bias", by: { buckets: 4, distance: 8 }, how: "both" };
    const [head] = biasByDistance(op, 2, [floats([4, 1], Float32Array.of(10, 11, 12, 13))]);
    expect(head).toEqual([[-1, 11], [0, 10], [1, 13]]);
  });
});
