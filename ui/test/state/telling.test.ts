import { describe, expect, it } from "vitest";
import type { Run } from "../../src/state/run";
import { mostTelling } from "../../src/state/telling";

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
