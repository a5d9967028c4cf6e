import { describe, expect, it } from "vitest";
import type { Token } from "../../src/core/protocol";
import type { Run } from "../../src/state/run";
import { textsOf } from "../../src/state/attention.svelte";
import { mostTelling, toldOf, type Curve } from "../../src/state/telling";

const word = { span: [0, 1], text: "word" }, mark = { span: null, text: "<s>" };
const MAPS: Record<string, number[][][]> = {
  // Head 0 looks at the mark, head 1 at itself, head 2 at a word of its own choice.
  "encoder.blocks.0.attn.weights": [
    [[9, 1, 0], [9, 0, 1], [9, 0, 1]], [[9, 0, 1], [0, 9, 1], [0, 1, 9]], [[9, 0, 1], [1, 0, 9], [1, 9, 0]],
  ],
  "decoder.blocks.1.cross.weights": [[[9, 1, 0], [1, 8, 1]], [[9, 1, 0], [1, 1, 8]]],
};

function run(...modules: string[]): Run {
  const heads = (at: string): object[] => MAPS[at]!.map((map) => ({
    rows: map.length, cols: map[0]!.length, max: Float32Array.from(map, (row) => Math.max(...row) / 10),
    pixels: Uint8Array.from(map.flatMap((row) => row.map((x) => (255 * x) / Math.max(...row)))),
  }));
  return { plan: { ops: modules.map((out) => ({ out })) }, heads, reply: { tokens: { encoder: [mark, word, word], decoder: [mark, word] } } } as unknown as Run;
}

describe("the head that a page opens with", () => {
  it("is the one whose words look at other words", () => {
    expect(mostTelling(run("encoder.blocks.0.attn.weights"))).toMatchObject({ stack: "encoder", part: "attn", head: 2, query: 1, key: 2 });
  });
  it("is of the cross-attention where there is one", () => {
    const found = mostTelling(run(...Object.keys(MAPS)));
    expect(found).toMatchObject({ stack: "decoder", layer: 1, part: "cross", query: 1 });
  });
  it("is the one that decides, where that is known", () => {
    expect(mostTelling(run(...Object.keys(MAPS)), "encoder.blocks.0.attn.z[h=0]")).toMatchObject({ stack: "encoder", head: 0, key: 2 });
  });
  it("is none of a model without attention", () => expect(mostTelling(run())).toBeNull());
});

describe("where the places begin", () => {
  const curve = (part: "attn" | "cross", to: number, from: number, moved: number): Curve => {
    const stack = part === "cross" ? "decoder" : "encoder", layer = part === "cross" ? 1 : 0;
    return { stack, layer, part, head: 0, z: `${stack}.blocks.${layer}.${part}.z[h=0]`, to, from, weight: 0.5, moved, p: NaN };
  };
  it("is the pair that carries most, not what looks most at a word; a word that reads itself does not count", () => {
    const all = [curve("attn", 0, 1, 0.4), curve("attn", 2, 2, 0.9), curve("attn", 1, 2, 0.1)];
    const { told, word } = toldOf(run(...Object.keys(MAPS)), "encoder.blocks.0.attn.z[h=0]", all);
    expect(told).toMatchObject({ stack: "encoder", query: 0, key: 1 });
    expect(word).toEqual({ stack: "encoder", layer: 0, query: 1 });
  });
  it("follows what a translation reads to what that word reads", () => {
    const z = "decoder.blocks.1.cross.z[h=0]", cross = curve("cross", 1, 2, 0.8);
    expect(toldOf(run(...Object.keys(MAPS)), z, [cross, curve("attn", 2, 1, 0.5), curve("attn", 2, 0, 0.1)]).word).toEqual({ stack: "encoder", layer: 0, part: "attn", query: 1 });
    expect(toldOf(run(...Object.keys(MAPS)), z, [cross]).word).toMatchObject({ query: 2 });
  });
  it("is what its words look at where nothing was measured", () => {
    expect(toldOf(run(...Object.keys(MAPS)), "encoder.blocks.0.attn.z[h=2]", []).told).toMatchObject({ head: 2, query: 1, key: 2 });
  });
});

describe("the name of a piece", () => {
  const tokens = (...all: [string, number, number][]): Token[] => all.map(([text, ...span]) => ({ id: 0, type: 0, text, span }));
  it("is its word up to it", () => {
    expect(textsOf(tokens(["▁qu", 0, 2], ["'", 2, 3], ["il", 3, 5], [".", 5, 6]))).toEqual(["▁qu…", "▁qu'", "il", "."]);
    expect(textsOf(tokens(["det", 0, 3], ["##ox", 3, 5], ["is", 6, 8]))).toEqual(["det…", "detox", "is"]);
    expect(textsOf(tokens(["▁L", 0, 1], ["ily", 1, 4]))).toEqual(["▁L…", "▁Lily"]);
  });
  it("is itself of letters, and of words without marks", () => {
    expect(textsOf(tokens(["a", 0, 1], ["b", 1, 2]))).toEqual(["a", "b"]);
    expect(textsOf(tokens(["▁", 0, 0], ["日", 0, 1], ["本", 1, 2]))).toEqual(["▁", "日", "本"]);
  });
});
