import { describe, expect, test } from "vitest";
import type { Tensor } from "../../src/core/host";
import { floats, type Floats } from "../../src/core/tensor";
import { activation } from "../../src/engine/functions";
import { bucket } from "../../src/engine/kinds/positions";
import { compute, KINDS } from "../../src/engine/ops";
import { dotRows, transposed, type Rows } from "../../src/engine/products";
import { difference, fixtures, random, tensorsOf } from "./fixtures";

const CLOSE = 1e-5;

test.each(fixtures())("$name: every op makes its recorded output of its recorded inputs", (one) => {
  const edited = new Set(one.edits.map((edit) => edit.at.split("[")[0]));
  const made = new Map<string, Tensor>(one.numbers);
  let recomputed = 0;
  for (const op of one.plan.ops) {
    const inputs = (op.inputs ?? []).map((name) => one.values.get(name) ?? made.get(name)!);
    const result = compute(op, inputs, (op.weights ?? []).map((name) => one.weights.get(name)!), one.plan.masks);
    made.set(op.out, result);
    const recorded = one.values.get(op.out);
    if (!recorded || edited.has(op.out)) continue;
    recomputed++;
    expect(difference(result, recorded, 1e-30), `${op.out} (${op.op})`).toBeLessThanOrEqual(CLOSE);
  }
  expect(recomputed).toBe([...one.values.keys()].filter((path) => !edited.has(path)).length);
});

test("every kind of op occurs in the fixtures", () => {
  const used = new Set(fixtures().flatMap((one) => one.plan.ops.map((op) => op.op)));
  expect([...used].sort()).toEqual([...KINDS].sort());
});

describe("functions", () => {
  const known = tensorsOf("functions");
  const x = known.get("x")!;
  test.each(["relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "softplus", "exp"])("%s is PyTorch's", (name) => {
    const made = floats(x.shape, Float32Array.from(x.data, activation(name)));
    expect(difference(made, known.get(`activation/${name}`)!, 1)).toBeLessThanOrEqual(1e-7);
  });

  test.each([...known.keys()].filter((name) => name.startsWith("buckets/")))("%s are exactly PyTorch's", (name) => {
    const [, buckets, distance, how] = name.split("/") as [string, string, string, string];
    const op = { out: "bias", op: "relative_bias", how, by: { buckets: Number(buckets), distance: Number(distance) } };
    const expected = known.get(name)!;
    expect(Array.from(expected.data, (_, i) => bucket(op, i - 700))).toEqual([...expected.data]);
  });
});

describe("products", () => {
  const next = random(1);
  const some = (n: number): Float32Array => Float32Array.from({ length: n }, () => next() - 0.5);
  const shapes = [[1, 1, 1], [1, 7, 5], [2, 4, 3], [3, 9, 8], [5, 3, 17], [4, 8, 1]] as const;
  test.each(shapes)("%i x %i of width %i", (n, m, width) => {
    const a = some(n * width), b = some(m * width), bias = some(m), out = new Float32Array(n * m);
    const rows = (data: Float32Array, step: number): Rows => ({ data, start: 0, step });
    dotRows(rows(out, m), rows(a, width), rows(b, width), n, m, width, bias);
    for (let i = 0; i < n; i++) {
      for (let j = 0; j < m; j++) {
        let sum = bias[j]!;
        for (let k = 0; k < width; k++) sum += a[i * width + k]! * b[j * width + k]!;
        expect(out[i * m + j]).toBeCloseTo(sum, 6);
      }
    }
    expect(transposed(transposed(b, 0, m, width), 0, width, m)).toEqual(b);
  });
});

describe("of equal numbers the first are chosen", () => {
  test.each([
    [{ k: 2 }, [1, 3, 3, 3], [0, 1, 1, 0]],
    [{ k: 1 }, [2, 2, 2, 2], [1, 0, 0, 0]],
    [{ k: 2, groups: 2, best: 1, kept: 1 }, [1, 3, 3, 2], [1, 1, 0, 0]],
  ])("%j of %j", (by, row, expected) => {
    const made = compute({ out: "a", op: "top_k", by }, [floats([1, 4], Float32Array.from(row))], [], {});
    expect([...made.data]).toEqual(expected);
  });
});

describe("what does not fit is refused in one line", () => {
  const x: Floats = floats([2, 2]);
  test.each([
    [{ out: "a", op: "conjure" }, [x], [], 'a: no op is called "conjure"'],
    [{ out: "a", op: "add" }, [x], [], "a: add takes 2 to 2 values"],
    [{ out: "a", op: "add" }, [x, floats([3])], [], "a: shapes [2,2] and [3] differ"],
    [{ out: "a", op: "linear" }, [x], [], "a: linear needs 1 weights"],
    [{ out: "a", op: "linear" }, [x], [floats([2, 3])], "a: shapes [2,2] and [2,3] do not fit"],
    [{ out: "a", op: "lookup" }, [floats([1], Float32Array.of(5))], [x], "a: row 5 is outside 0..1"],
    [{ out: "a", op: "scale" }, [x], [], 'a: scale needs a setting "factor"'],
    [{ out: "a", op: "mask", how: "m" }, [x], [], 'a: no mask is called "m"'],
    [{ out: "a", op: "pool", how: "odd" }, [x], [], 'a: states are not pooled by "odd"'],
    [{ out: "a", op: "activation", how: "odd" }, [x], [], 'no activation is called "odd"'],
    [{ out: "a", op: "matmul" }, [x, floats([3, 2])], [], "a: shapes [2,2] and [3,2] do not fit"],
  ])("%j", (op, inputs, weights, message) => {
    expect(() => compute(op, inputs, weights, {})).toThrow(new Error(message));
  });
});
