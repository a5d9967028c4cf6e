import { describe, expect, it } from "vitest";
import type { Op, Plan } from "../../src/core/protocol";
import type { Run } from "../../src/state/run";
import { active, column, feedForwardOf, strongest } from "../../src/views/ffn/feedforward";
import { grouped, headsOf } from "../../src/views/heads/heads";
import { cosine, lengths } from "../../src/core/vectors";
import { joinsOf, normsAround } from "../../src/views/norm/joins";
import { measured } from "../../src/views/residual/stops";

const at = "decoder.blocks.0";
const norm = (name: string, of: string): Op[] => [
  { out: `${name}.mean`, op: "mean", inputs: [of] },
  { out: `${name}.rstd`, op: "rstd", inputs: [of, `${name}.mean`], by: { eps: 1e-5 } },
  { out: `${name}.out`, op: "norm", inputs: [of, `${name}.mean`, `${name}.rstd`], weights: [`${name}.weight`, `${name}.bias`] },
];
const plan = (ops: Op[]): Plan => ({ config: {} as never, ops, masks: {} });

const pre = plan([
  { out: `${at}.resid_pre`, op: "copy", inputs: ["decoder.embed.sum"] },
  ...norm(`${at}.attn_norm`, `${at}.resid_pre`),
  { out: `${at}.attn.scores`, op: "add", inputs: [`${at}.attn.scores.scaled`, `${at}.attn.scores.bias`] },
  { out: `${at}.resid_attn`, op: "add", inputs: [`${at}.resid_pre`, `${at}.attn.out`] },
]);
const post = plan([
  { out: `${at}.attn_sum`, op: "add", inputs: [`${at}.resid_pre`, `${at}.attn.out`] },
  ...norm(`${at}.attn_norm`, `${at}.attn_sum`),
  { out: `${at}.resid_attn`, op: "copy", inputs: [`${at}.attn_norm.out`] },
]);
const sandwich = plan([
  ...norm(`${at}.attn_norm`, `${at}.resid_pre`),
  ...norm(`${at}.attn_out_norm`, `${at}.attn.out`),
  { out: `${at}.resid_attn`, op: "add", inputs: [`${at}.resid_pre`, `${at}.attn_out_norm.out`] },
]);

describe("where a block adds to the stream", () => {
  it("is found for every place of the norm", () => {
    for (const [ops, sum, branch] of [[pre, "resid_attn", "attn.out"], [post, "attn_sum", "attn.out"], [sandwich, "resid_attn", "attn_out_norm.out"]] as const) {
      expect(joinsOf(ops, "decoder")).toEqual([
        { layer: 0, part: "attn", stream: `${at}.resid_pre`, branch: `${at}.${branch}`, sum: `${at}.${sum}`, after: `${at}.resid_attn` },
      ]);
    }
    expect(joinsOf(pre, "encoder")).toEqual([]);
  });

  it("has its norms before or after", () => {
    const names = (ops: Plan): [string[], string[]] => {
      const { before, after } = normsAround(ops, joinsOf(ops, "decoder")[0]!);
      return [before.map((one) => one.out), after.map((one) => one.out)];
    };
    expect(names(pre)).toEqual([[`${at}.attn_norm.out`], []]);
    expect(names(post)).toEqual([[], [`${at}.attn_norm.out`]]);
    expect(names(sandwich)).toEqual([[`${at}.attn_norm.out`, `${at}.attn_out_norm.out`], []]);
    expect(normsAround(pre, joinsOf(pre, "decoder")[0]!).before[0]).toMatchObject({ of: `${at}.resid_pre`, rstd: `${at}.attn_norm.rstd` });
  });
});

describe("vectors", () => {
  it("have lengths and angles", () => {
    expect([...lengths(Float32Array.of(3, 4, 0, 5), 2)]).toEqual([5, 5]);
    expect(cosine([1, 0], [-2, 0])).toBe(-1);
    expect(cosine([1, 0], [0, 0])).toBe(0);
  });
});

describe("the stream", () => {
  it("is told by the lengths of what is added", () => {
    const join = { layer: 0, part: "attn" as const, stream: "", branch: "", sum: "", after: "" }, stop = measured(join, [3, 4], [3, 4], [1, 0]);
    expect(stop).toMatchObject({ stream: 5, adds: 5, sum: 10, after: 1 });
    expect(stop.cosine).toBeCloseTo(1, 12);
  });
});

describe("the feed-forward part", () => {
  const linear = (out: string, of: string, matrix: string): Op => ({ out: `${at}.ffn.${out}`, op: "linear", inputs: [of], weights: [`${at}.ffn.${matrix}.weight`] });
  const x = `${at}.ffn_norm.out`, gates = `${at}.ffn.act`;

  it("is found, with and without gates", () => {
    const plain = plan([linear("pre", x, "up"), { out: `${at}.ffn.post`, op: "activation", inputs: [`${at}.ffn.pre`], how: "relu" }, linear("out", `${at}.ffn.post`, "down")]);
    expect(feedForwardOf(plain, at)).toMatchObject({ of: x, up: null, post: `${at}.ffn.post`, activation: "relu", down: `${at}.ffn.down.weight` });
    const gated = plan([
      linear("pre", x, "gate"), { out: gates, op: "activation", inputs: [`${at}.ffn.pre`], how: "silu" }, linear("up", x, "up"),
      { out: `${at}.ffn.post`, op: "multiply", inputs: [gates, `${at}.ffn.up`] }, linear("out", `${at}.ffn.post`, "down"),
    ]);
    expect(feedForwardOf(gated, at)?.up?.weights).toEqual([`${at}.ffn.up.weight`]);
    expect(feedForwardOf(gated, at)?.down).toBe(`${at}.ffn.down.weight`);
    expect(feedForwardOf(plain, "decoder.blocks.9")).toBeNull();
  });

  it("counts its units", () => {
    expect(strongest([1, -5, 3], 2)).toEqual([1, 2]);
    expect(active([1, -5, 0])).toBe(1);
    expect([...column([1, 2, 3, 4, 5, 6], 3, 1)]).toEqual([2, 5]);
  });
});

describe("heads", () => {
  const ops = ["encoder.blocks.0.attn", "decoder.blocks.0.cross"].map((module): Op => ({ out: `${module}.weights`, op: "softmax" }));
  const facts = Object.fromEntries(ops.map((op) => [op.out, { shape: [2, 3, 3], axes: "h t s" }]));
  const heads = headsOf({ plan: plan(ops), reply: { facts } } as unknown as Run);

  it("are those of every attention", () => {
    expect(heads.map((head) => head.z)).toEqual([
      "encoder.blocks.0.attn.z[h=0]", "encoder.blocks.0.attn.z[h=1]", "decoder.blocks.0.cross.z[h=0]", "decoder.blocks.0.cross.z[h=1]",
    ]);
  });

  it("are ordered by place, effect or kind", () => {
    const effects = new Map(heads.map((head, i) => [head.z, i]));
    const kinds = Object.fromEntries(heads.map((head, i) => [head.weights, { kind: i === 3 ? "first" : "other" }])) as never;
    expect(grouped(heads, "place", effects, kinds).map((group) => group.heads.length)).toEqual([2, 2]);
    expect(grouped(heads, "effect", effects, kinds)[0]?.heads.map((head) => effects.get(head.z))).toEqual([3, 2, 1, 0]);
    expect(grouped(heads, "kind", effects, kinds).map((group) => [group.key, group.heads.length])).toEqual([["first", 1], ["other", 3]]);
  });
});
