import { describe, expect, it } from "vitest";
import type { Explanation, Term } from "../../src/engine/forms";
import { resultOf } from "../../src/engine/forms";
import { briefName, largestRows, makingOf, shortName } from "../../src/parts/making";
import { isClose, seenAt, roundingOf } from "../../src/parts/explanation";

const at = "encoder.blocks.1.attn";
const term = (value: number, name = `${at}.masked`, index = [0, 0, 0]): Term => ({ kind: "value", name, index, value });
const explained = (form: object, out = `${at}.weights`): Explanation =>
  ({ ...form, op: "softmax", out, index: [0, 0, 0], result: resultOf(form as never) }) as Explanation;

describe("names", () => {
  it("leave out what they have in common with where one stands", () => {
    expect(shortName(`${at}.masked`, `${at}.weights`)).toBe("masked");
    expect(shortName("encoder.blocks.0.resid_post", "encoder.blocks.1.resid_pre")).toBe("0.resid_post");
    expect(shortName("decoder.blocks.3.ffn.down.weight", "decoder.blocks.3.ffn.out")).toBe("down.weight");
    expect(shortName("encoder.blocks.0.attn_norm.weight", "encoder.blocks.0.attn_norm.out")).toBe("attn_norm.weight");
  });

  it("are two parts, three where the first is a block", () => {
    expect(briefName("encoder.blocks.1.ffn.out")).toBe("ffn.out");
    expect(briefName("encoder.blocks.1.resid_post")).toBe("blocks.1.resid_post");
    expect(briefName("head.logits")).toBe("head.logits");
  });
});

describe("a making", () => {
  it("of a share: its terms are the row's exps, its steps end in the share", () => {
    const cells = [0, Math.log(3), -Infinity].map((value) => ({ of: term(value), exp: Math.exp(value - Math.log(3)) }));
    const making = makingOf(explained({ form: "share", cells, at: 1, largest: Math.log(3), total: 4 / 3 }));
    expect(making.rows.map((row) => row.amount)).toEqual([1 / 3, 1, 0].map((x) => expect.closeTo(x, 12)));
    expect(making.at).toBe(1);
    expect(making.steps.at(-1)?.value).toBeCloseTo(0.75, 12);
    expect(making.signs).toBe("exp(masked) ÷ Σ exp(masked)");
  });

  it("of products: the rows add up to the number, the bias among them", () => {
    const products = [[2, 3], [-1, 4]].map(([a, b]) => ({ left: term(a!), right: { ...term(b!), kind: "weight" }, product: a! * b! }));
    const explanation = explained({ form: "products", products, bias: { ...term(0.5, `${at}.q.bias`), kind: "weight" } }, `${at}.q.linear`);
    const making = makingOf(explanation);
    expect(making.rows.reduce((sum, row) => sum + row.amount, 0)).toBe(explanation.result);
    expect(making.rows).toHaveLength(3);
    expect(making.signs).toBe("Σ masked · masked + q.bias");
  });

  it("of a spread: the steps are variance, deviation, inverse", () => {
    const cells = [1, 3].map((value) => ({ of: term(value), deviation: value - 2, square: 1 }));
    const explanation = explained({ form: "spread", cells, mean: term(2), variance: 1, eps: 0.21 });
    expect(makingOf(explanation).steps.map((step) => step.value)).toEqual([1, 1.1, 1 / 1.1]);
    expect(explanation.result).toBeCloseTo(1 / 1.1, 12);
  });

  it("of any form ends where the explanation does", () => {
    const one = { ...term(0.5), kind: "number" };
    const forms = [
      { form: "mean", terms: [term(1), term(2)] },
      { form: "product", left: term(2), right: term(-3) },
      { form: "function", name: "relu", of: term(-3), settings: {} },
      { form: "function", name: "scale", of: term(-3), settings: { factor: 0.25 } },
      { form: "function", name: "soft_cap", of: term(9), settings: { cap: 5 } },
      { form: "norm", of: term(3), mean: term(1), rstd: term(0.5), gain: term(4), shift: term(-1), centred: 2, scaled: 1 },
      { form: "norm", of: term(3), mean: null, rstd: term(0.5), gain: term(4), shift: null, centred: 3, scaled: 1.5 },
      { form: "wave", wave: "sin", position: one, frequency: 2, angle: 1 },
      { form: "taken", of: term(7), by: one },
      { form: "bucket", of: term(7), query: one, key: one, distance: 0, bucket: 0 },
      { form: "slope", slope: 0.5, query: one, key: one, distance: -3 },
      { form: "mask", of: term(7), open: false, causal: true, window: null, query: 0, key: 1 },
    ];
    for (const form of forms) {
      const explanation = explained(form);
      expect(makingOf(explanation).steps.at(-1)?.value, form.form).toBeCloseTo(explanation.result, 12);
    }
  });
});

describe("the largest rows", () => {
  const rows = [5, -9, 1, 2, -3].map((amount, i) => ({ of: term(amount, at, [i]), pieces: [], amount }));

  it("come first, and the others keep the sum", () => {
    const { shown, others, sum } = largestRows(rows, 2);
    expect(shown.map((row) => row.amount)).toEqual([-9, 5]);
    expect([others, sum]).toEqual([3, 0]);
  });

  it("hold the chosen one, and all where only one would be left over", () => {
    expect(largestRows(rows, 2, 2).shown.map((row) => row.amount)).toEqual([-9, 1]);
    expect(largestRows(rows, 4).others).toBe(0);
  });
});

describe("a number", () => {
  it("agrees within float32", () => {
    expect(isClose(-Infinity, -Infinity)).toBe(true);
    expect(isClose(1.00001, 1)).toBe(true);
    expect(isClose(1.02, 1)).toBe(false);
    expect(isClose(1, -Infinity)).toBe(false);
    expect(isClose(1.0001, Math.fround(1.0000005))).toBe(false);
    expect(isClose(1.0001, Math.fround(1.0000005), 100)).toBe(true);
  });

  it("of a model in 16 bits agrees within those", () => {
    expect(roundingOf(Math.fround(0.1))).toBe(1e-5);
    expect(roundingOf(-4.70703125)).toBe(2 ** -9);
    expect(roundingOf(1.5)).toBe(2 ** -6);
    expect(roundingOf(0)).toBe(1e-5);
    expect(isClose(-4.70838, -4.70703125)).toBe(true);
  });

  it("has a place in the page", () => {
    expect(seenAt("decoder.blocks.2.cross.weights", { h: 1, t: 3, s: 4 })).toEqual(
      { view: "attention", stack: "decoder", layer: 2, part: "cross", head: 1, query: 3, key: 4 });
    expect(seenAt("encoder.blocks.0.ffn.post", { t: 3, f: 17 })).toMatchObject({ view: "ffn", layer: 0, dim: 17 });
    expect(seenAt("encoder.blocks.0.attn_norm.rstd", { t: 3, d: 0 })).toMatchObject({ view: "norm" });
    expect(seenAt("head.logits", { t: 3, v: 9 })).toEqual({ view: "logits", position: 3 });
    expect(seenAt("nothing", {})).toBeNull();
  });
});
