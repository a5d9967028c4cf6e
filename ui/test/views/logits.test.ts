import { describe, expect, it, test } from "vitest";
import { softmax } from "../../src/core/vectors";
import { order } from "../../src/core/vectors";
import { entropy, rank, sharesOf, spread, writerOf } from "../../src/views/logits/logits";

const LOGITS = [2, 1, 0.5, 0, -1];
const sum = (shares: Float64Array): number => shares.reduce((all, p) => all + p, 0);

describe("sharesOf", () => {
  it("keeps the true shares whatever the settings", () => {
    const { trueShares } = sharesOf(LOGITS, 0.3, 2, 0.5);
    expect([...trueShares]).toEqual([...softmax(LOGITS)]);
  });

  it("makes what is left add up to 1 after each step", () => {
    const steps = sharesOf(LOGITS, 1.7, 4, 0.8);
    for (const shares of [steps.trueShares, steps.tempered, steps.afterK, steps.afterP]) expect(sum(shares)).toBeCloseTo(1, 12);
  });

  it("cuts top-p from what top-k left", () => {
    // .56 .21 … of all: two would be needed for 0.7. Of the two that top-k leaves, .73 .27, the first is enough.
    const { afterK, afterP } = sharesOf([2, 1, 0.5, 0, -1], 1, 2, 0.7);
    expect(afterK[0]).toBeCloseTo(1 / (1 + Math.exp(-1)), 12);
    expect([...afterP]).toEqual([1, 0, 0, 0, 0]);
  });

  it("changes nothing where nothing is cut", () => {
    const steps = sharesOf(LOGITS, 1, null, 1);
    expect([...steps.afterP]).toEqual([...steps.trueShares]);
  });

  it("keeps the ratios of what it keeps", () => {
    const { tempered, afterK } = sharesOf(LOGITS, 0.5, 3, 1);
    expect(afterK[0]! / afterK[2]!).toBeCloseTo(tempered[0]! / tempered[2]!, 10);
    expect(afterK[3]).toBe(0);
  });

  it("takes the likeliest alone at temperature 0", () => {
    expect([...sharesOf(LOGITS, 0, null, 1).tempered]).toEqual([1, 0, 0, 0, 0]);
  });
});

describe("what is kept", () => {
  const logits = (shares: number[]): number[] => shares.map(Math.log);

  it("top-k keeps ties of the k-th", () => {
    expect([...sharesOf(logits([0.4, 0.2, 0.2, 0.2]), 1, 2, 1).afterK].filter((p) => p > 0)).toHaveLength(4);
  });

  it("top-p keeps the fewest that reach p, one at least", () => {
    const kept = (p: number): number[] => [...sharesOf(logits([0.2, 0.5, 0.3]), 1, null, p).afterP].flatMap((share, i) => (share > 0 ? [i] : []));
    expect(kept(0.1)).toEqual([1]);
    expect(kept(0.49)).toEqual([1]);
    expect(kept(0.6)).toEqual([1, 2]);
  });
});

it("orders by value, ties by place", () => {
  expect(order([1, 3, 3, 2])).toEqual([1, 2, 3, 0]);
});

it("counts those before for a rank", () => {
  expect([0, 1, 2, 3].map((id) => rank([1, 3, 3, 2], id))).toEqual([4, 1, 1, 3]);
});

it("measures entropy in nats", () => {
  expect(entropy(Float64Array.of(0.25, 0.25, 0.25, 0.25))).toBeCloseTo(Math.log(4), 12);
  expect(entropy(Float64Array.of(1, 0))).toBe(0);
});

it("reads what a part is from its address", () => {
  expect(writerOf("decoder.blocks.3.cross.heads[h=2]")).toEqual({ kind: "head", stack: "decoder", layer: 3, part: "cross", head: 2 });
  expect(writerOf("decoder.blocks.0.ffn.out")).toMatchObject({ kind: "ffn", layer: 0 });
  expect(writerOf("decoder.embed.positions")).toMatchObject({ kind: "embedding", layer: null });
  expect(writerOf("decoder.blocks.1.attn.out.bias")).toMatchObject({ kind: "bias", layer: 1 });
  expect(writerOf("head.output.bias")).toMatchObject({ kind: "bias", layer: null });
});

test("spread counts shares", () => expect(spread([0, 0, 0, 1, NaN], 2)).toEqual([[0.25, 0.75], [0.75, 0.25]]));
