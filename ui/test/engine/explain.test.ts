import { describe, expect, test } from "vitest";
import { formatAddress, type Index } from "../../src/core/address";
import type { Tensor } from "../../src/core/host";
import type { Fact } from "../../src/core/protocol";
import { cell, largest, size } from "../../src/core/tensor";
import { explained, sources, type Stored } from "../../src/engine/explain";
import { forward, type Pass } from "../../src/engine/forward";
import { resultOf, type Explanation } from "../../src/engine/forms";
import { KINDS } from "../../src/engine/ops";
import { factsOf, lettersOf } from "../../src/engine/taps";
import { fixtures, random, type Fixture } from "./fixtures";

const CLOSE = 1e-5;
const EACH = 3;

/** The address of one number. */
function addressOf(path: string, index: readonly number[]): string {
  const letters = lettersOf(path, index.length)!.split(" ");
  return formatAddress({ path, index: letters.map((letter, axis): Index => [letter, index[axis]!]) });
}

/** Some cells of every op of a run with its edits, and what was there before an edit of its own. */
function cells(one: Fixture, made: Pass): { at: string; path: string; index: number[] }[] {
  const next = random(one.name.length + one.plan.ops.length);
  return one.plan.ops.flatMap(({ out: path }) => {
    const { shape } = made.values.get(path)!;
    return Array.from({ length: EACH }, () => {
      const index = shape.map((length) => Math.floor(next() * length));
      return { at: addressOf(path, index), path, index };
    });
  });
}

function expectClose(found: Explanation, value: Tensor, index: number[]): void {
  const recorded = cell(value, index);
  if (!Number.isFinite(recorded)) return expect(found.result).toBe(recorded);
  const off = Math.abs(found.result - recorded) / Math.max(largest(value.data), 1e-30);
  expect(off, `${found.out}[${found.index}] ${found.result} ${recorded}`).toBeLessThanOrEqual(CLOSE);
}

/** A host that stores what is tapped, and gives the parts that are asked for. */
function fetchFrom(made: Pass, facts: Record<string, Fact>, at: string): Tensor {
  const [path, inside] = at.split("[") as [string, string?];
  const fixed = new Map((inside?.slice(0, -1).split(",") ?? []).map((part) => part.split("=") as [string, string]));
  const tensor = path in facts ? made.values.get(path)! : made.weights.get(path)!;
  const letters = path in facts ? facts[path]!.axes.split(" ") : ["i", "j"];
  const shape = tensor.shape.filter((_, axis) => !fixed.has(letters[axis]!));
  expect(path in facts || inside !== undefined || tensor.shape.length === 1, `${at} is a whole matrix`).toBe(true);
  const data: number[] = [];
  const go = (index: number[]): void => {
    const axis = index.length, given = fixed.get(letters[axis]!);
    if (axis === tensor.shape.length) data.push(cell(tensor, index));
    else if (given !== undefined) go([...index, Number(given)]);
    else for (let i = 0; i < tensor.shape[axis]!; i++) go([...index, i]);
  };
  go([]);
  expect(data.length).toBe(size(shape));
  // As a host says that a cell is closed.
  return { shape, data: Float32Array.from(data, (x) => (x === -Infinity ? NaN : x)) };
}

/** A host that stores every value. */
function storing({ plan, numbers, values }: Pass): Stored {
  const facts = [...values].map(([path, { shape }]): [string, Fact] => [path, { shape, axes: lettersOf(path, shape.length)! }]);
  return { plan, numbers, facts: Object.fromEntries(facts) };
}

function explainedFrom(made: Pass, stored: Stored, at: string): Explanation {
  const { values, weights } = sources(at, stored);
  return explained(at, stored, new Map([...values, ...weights].map((from) => [from, fetchFrom(made, stored.facts, from)])));
}

describe.each(fixtures())("$name", (one) => {
  const plain = forward(one.plan, one.weights, one.numbers);
  const made = forward(one.plan, one.weights, one.numbers, one.edits, { other: one.other });
  const edited = new Set(one.edits.map((edit) => edit.at.split("[")[0]!));
  const context = { plan: one.plan, numbers: one.numbers };

  test("numbers of every op come to what was made, from a host that stores every value", () => {
    const stored = storing(plain);
    for (const { at, path, index } of cells(one, plain)) {
      expectClose(explainedFrom(plain, stored, at), plain.values.get(path)!, index);
    }
  });

  test("and from the parts that a host with the tapped values alone is asked for, edits made", () => {
    const stored: Stored = { ...context, facts: factsOf(made.values, edited) };
    for (const { at, path, index } of cells(one, made)) {
      if (edited.has(path)) continue;
      const found = explainedFrom(made, stored, at);
      expectClose(found, made.values.get(path)!, index);
      expect(resultOf(found)).toBe(found.result);
    }
  });
});

describe("what it says", () => {
  const one = fixtures().find((fixture) => fixture.name === "decoder_pre_learned")!;
  const made = forward(one.plan, one.weights, one.numbers);
  const at = "decoder.blocks.1.attn";
  const stored: Stored = { plan: one.plan, numbers: one.numbers, facts: factsOf(made.values, new Set()) };
  const everything = storing(made);
  const last = one.values.get(`${at}.weights`)!.shape[1]! - 1;

  test("a weight is a share of its row", () => {
    const found = explainedFrom(made, everything, `${at}.weights[h=2,t=${last},s=1]`);
    if (found.form !== "share") throw new Error(found.form);
    expect(found.cells.map((one) => one.of.index)).toEqual(Array.from({ length: last + 1 }, (_, s) => [2, last, s]));
    expect(found.result).toBe(found.cells[1]!.exp / found.total);
    expect(Math.max(...found.cells.map((one) => one.exp))).toBe(1);
  });

  test("a closed cell is a share of nothing, of minus infinity", () => {
    const share = explainedFrom(made, everything, `${at}.weights[h=0,t=0,s=1]`);
    expect(share.result).toBe(0);
    const mask = explainedFrom(made, everything, `${at}.masked[h=0,t=0,s=1]`);
    expect(mask).toMatchObject({ form: "mask", open: false, causal: true, query: 0, key: 1, result: -Infinity });
  });

  test("a score before it is scaled needs a row of the queries and one of the keys, nothing else", () => {
    expect(sources(`${at}.scores.product[h=1,t=2,s=0]`, stored)).toEqual({
      values: [`${at}.q[h=1,t=2]`, `${at}.k[h=1,s=0]`],
      weights: [],
    });
    expect(sources(`${at}.scores[h=1,t=2,s=0]`, stored).values).toEqual([`${at}.q[h=1,t=2]`, `${at}.k[h=1,s=0]`]);
  });

  test("a hidden unit needs one row of the matrix", () => {
    expect(sources("decoder.blocks.0.ffn.pre[t=3,f=7]", stored)).toEqual({
      values: ["decoder.blocks.0.ffn_norm.out[t=3]"],
      weights: ["decoder.blocks.0.ffn.up.weight[i=7]", "decoder.blocks.0.ffn.up.bias"],
    });
  });

  test("a row of masked scores is made of the scores", () => {
    expect(sources(`${at}.weights[h=1,t=2,s=0]`, stored)).toEqual({ values: [`${at}.scores[h=1,t=2]`], weights: [] });
  });

  test("a token's vector is a row of the table, chosen by its id", () => {
    const found = explainedFrom(made, everything, "decoder.embed.tokens[t=1,d=4]");
    const id = one.numbers.get("decoder.ids")!.data[1]!;
    expect(found).toMatchObject({
      form: "taken",
      of: { kind: "weight", name: "decoder.embed.tokens.weight", index: [id, 4] },
      by: { kind: "number", name: "decoder.ids", index: [1], value: id },
    });
  });

  test.each([
    [`${at}.weights[h=2]`, "expected an index on every axis, from 0"],
    [`${at}.weights[h=2,t=0,d=1]`, "expected an index on every axis, from 0"],
    [`${at}.weights[h=2,t=0,s=-1]`, "expected an index on every axis, from 0"],
    ["decoder.nothing[t=0,d=1]", "expected an address of this model, got another"],
  ])("%s is refused in one line", (wrong, message) => {
    expect(() => sources(wrong, stored)).toThrow(message);
  });

  test("every form and every op is explained somewhere", () => {
    const kinds = new Set<string>(), forms = new Set<string>();
    for (const fixture of fixtures()) {
      const whole = forward(fixture.plan, fixture.weights, fixture.numbers), stored = storing(whole);
      for (const { at } of cells(fixture, whole)) {
        const found = explainedFrom(whole, stored, at);
        kinds.add(found.op);
        forms.add(found.form);
      }
    }
    expect([...kinds].sort()).toEqual([...KINDS].sort());
    expect(forms.size).toBe(16);
  });
});
