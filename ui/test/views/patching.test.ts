import { describe, expect, it } from "vitest";
import type { RunRequest } from "../../src/core/protocol";
import type { Run } from "../../src/state/run";
import { editsOf, matricesOf } from "../../src/views/patching/patching";
import { writerName, writerPlace } from "../../src/views/writers";

const from: RunRequest = { text: "a b", target: null, edits: [] };
const asked: string[] = [];
const clean = { value: (at: string) => (asked.push(at), Promise.resolve({ shape: [2], data: Float32Array.of(1, 2) })) } as unknown as Run;

describe("a sweep", () => {
  it("is a matrix for each kind of state, the last block first; rows to come are empty", () => {
    const sites = ["decoder.blocks.1.attn.out", "decoder.blocks.1.cross.out", "decoder.blocks.0.attn.out", "decoder.blocks.0.cross.out"];
    const found = matricesOf(sites, new Map([["decoder.blocks.1.attn.out", Float32Array.of(0.5, NaN)]]));
    expect(found).toEqual([{ stack: "decoder", value: "attn.out", blocks: [1, 0], cols: 2, values: Float32Array.of(0.5, NaN, NaN, NaN) }]);
  });
});

describe("a cell as an edit", () => {
  it("is a patch where positions are the same in both texts", async () => {
    const cell = { at: "decoder.blocks.1.resid_pre", axis: "t", index: 1 } as const;
    expect(await editsOf(cell, [[0, 0], [1, 1]], clean, from)).toEqual([{ at: "decoder.blocks.1.resid_pre[t=1]", do: "patch", from }]);
  });

  it("writes the numbers of the partner where they moved, of a head at every position", async () => {
    asked.length = 0;
    const stream = await editsOf({ at: "decoder.blocks.1.resid_pre", axis: "t", index: 2 }, [[0, 0], [1, 2]], clean, from);
    expect(stream).toEqual([{ at: "decoder.blocks.1.resid_pre[t=2]", do: "set", value: [1, 2] }]);
    const head = await editsOf({ at: "decoder.blocks.0.attn.z", axis: "h", index: 3 }, [[0, 0], [1, 2]], clean, from);
    expect(head.map(({ at }) => at)).toEqual(["decoder.blocks.0.attn.z[h=3,t=0]", "decoder.blocks.0.attn.z[h=3,t=2]"]);
    expect(asked).toEqual(["decoder.blocks.1.resid_pre[t=1]", "decoder.blocks.0.attn.z[h=3,t=0]", "decoder.blocks.0.attn.z[h=3,t=1]"]);
  });
});

describe("a writer", () => {
  it("has a name, and a place unless it is a bias", () => {
    expect(writerName("decoder.blocks.3.cross.heads[h=2]")).toBe("cross 3.2");
    expect(writerName("decoder.blocks.3.attn.q.bias")).toBe("bias 3.attn.q");
    expect(writerName("encoder.positions.norm.out")).toBe("vector of the distance");
    expect(writerName("decoder.blocks.0.resid_attn")).toBe("blocks.0.resid_attn");
    expect(writerPlace("encoder.blocks.3.ffn.out", 4)).toEqual({ view: "ffn", stack: "encoder", layer: 3, query: 4 });
    expect(writerPlace("decoder.blocks.3.attn.q.bias", 4)).toBeNull();
  });
});
