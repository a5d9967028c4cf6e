import { describe, expect, it } from "vitest";
import type { Edge, ModelConfig, StackConfig } from "../../src/core/protocol";
import { fedBy, layout, onAPath, partOf, road, ROOM } from "../../src/views/circuits/circuits";

const stack = (n_kv_heads: number | null): StackConfig => ({ n_layers: 2, n_heads: 4, n_kv_heads, d_model: 8 }) as unknown as StackConfig;
const BOTH = { encoder: stack(null), decoder: stack(null), head: { kind: "language" } } as ModelConfig;
const GROUPED = { encoder: null, decoder: stack(2), head: { kind: "language" } } as ModelConfig;
const edge = (writer: string, reader: string): Edge => ({ writer, reader, score: 1 });

describe("parts of addresses", () => {
  it("joins what reads and what writes", () => {
    expect(partOf("decoder.blocks.1.cross.q[h=2]", BOTH).key).toBe(partOf("decoder.blocks.1.cross.heads[h=2]", BOTH).key);
    expect(partOf("encoder.blocks.0.ffn.pre", BOTH).key).toBe(partOf("encoder.blocks.0.ffn.out", BOTH).key);
    expect(partOf("head.logits", BOTH)).toMatchObject({ kind: "answer", stack: "decoder" });
  });

  it("feeds every head of a shared key", () => {
    expect(fedBy("decoder.blocks.0.attn.k[h=1]", GROUPED)).toEqual(["decoder.blocks.0.attn.heads[h=2]", "decoder.blocks.0.attn.heads[h=3]", "decoder.blocks.0.attn.out"]);
    expect(fedBy("decoder.blocks.0.attn.q[h=1]", GROUPED)).toEqual(["decoder.blocks.0.attn.heads[h=1]", "decoder.blocks.0.attn.out"]);
    expect(fedBy("head.logits", GROUPED)).toEqual([]);
  });
});

describe("pruning", () => {
  it("keeps what lies on a path from an embedding to the answer", () => {
    const way = [
      edge("encoder.embed.tokens", "encoder.blocks.0.attn.v[h=1]"),
      edge("encoder.blocks.0.attn.heads[h=1]", "decoder.blocks.0.cross.v[h=2]"),
      edge("decoder.blocks.0.cross.heads[h=2]", "head.logits"),
    ];
    const lost = [
      edge("encoder.embed.tokens", "encoder.blocks.1.ffn.pre"),
      edge("decoder.blocks.1.attn.heads[h=0]", "head.logits"),
      edge("decoder.blocks.0.ffn.out", "decoder.blocks.1.attn.q[h=0]"),
    ];
    expect(onAPath([...way, ...lost], BOTH)).toEqual(way);
    expect(onAPath(way.slice(0, 2), BOTH)).toEqual([]);
    const weak = [edge("encoder.embed.positions", "encoder.blocks.0.attn.k[h=1]"), edge("decoder.blocks.1.ffn.out", "head.logits")].map((one) => ({ ...one, score: -0.5 }));
    expect(road([...weak, ...way], BOTH)).toEqual(way);
    expect(road(lost.slice(0, 1), BOTH)).toEqual([]);
    expect(road([...weak.map((one) => ({ ...one, score: -3 })), ...way], BOTH)).toEqual(way); // What works against the answer is no way to it.
    const trap = [edge("encoder.embed.tokens", "encoder.blocks.1.ffn.pre"), edge("encoder.blocks.1.ffn.out", "decoder.blocks.0.cross.v[h=2]")].map((one, i) => ({ ...one, score: i ? 2 : -1 }));
    expect(road([...trap, ...way], BOTH)).toEqual(way); // Nor what is strongest itself, and reads only what works against it.
  });

  it("follows features: each is read and writes, those of an attention are fed by all of it", () => {
    const stream = "decoder.blocks.0.resid_post.features[f=12]", across = "decoder.blocks.1.cross.out.features";
    const way = [
      edge("decoder.embed.tokens", stream),
      edge(stream, "decoder.blocks.1.cross.q[h=2]"),
      edge(`${across}.error`, "head.logits"),
    ];
    expect(onAPath([...way, edge("decoder.blocks.0.resid_post.features[f=3]", "head.logits")], BOTH)).toEqual(way);
    expect(onAPath([...way.slice(0, 2), edge("decoder.blocks.1.attn.out.features[f=1]", "head.logits")], BOTH)).toEqual([]);
  });
});

describe("features", () => {
  const at = ["decoder.blocks.0.resid_pre", "decoder.blocks.0.attn.out", "decoder.blocks.0.ffn_norm.out", "decoder.blocks.0.resid_post"].map((site) => `${site}.features[f=7]`);

  it("are parts with the address of their set", () => {
    expect(partOf(at[2]!, GROUPED)).toMatchObject({ kind: "feature", layer: 0, head: 7, side: "decoder.blocks.0.ffn_norm.out.features" });
    expect(partOf("encoder.blocks.1.resid_post.mine.others", BOTH)).toMatchObject({ kind: "feature", stack: "encoder", head: -1, side: "encoder.blocks.1.resid_post.mine" });
  });

  it("stand where they are written, below each other", () => {
    const heads = "decoder.blocks.0.attn.heads[h=0]", error = "decoder.blocks.0.resid_post.features.error";
    const spots = layout(new Map([...at, heads, error, "decoder.embed.tokens"].map((name) => [name, 1])), GROUPED, { width: ROOM.left + ROOM.right + 200, pitch: 40 });
    const x = (name: string): number => spots.get(partOf(name, GROUPED).key)!.x;
    expect(["decoder.embed.tokens", at[0]!, heads, at[1]!, at[2]!, at[3]!].map((name) => Math.round(x(name) - ROOM.left))).toEqual([0, 20, 40, 60, 80, 100]);
    expect(x(error)).toBe(x(at[3]!));
    expect(spots.get(error)!.y).toBeGreaterThan(spots.get(at[3]!)!.y);
  });
});

describe("layout", () => {
  it("stands the decoder after the encoder and lower, and later parts further right", () => {
    const names = ["encoder.embed.tokens", "encoder.blocks.1.ffn.out", "decoder.blocks.0.attn.heads[h=0]", "decoder.blocks.0.cross.heads[h=0]", "decoder.blocks.0.ffn.out"];
    const spots = layout(new Map(names.map((name) => [name, 1])), BOTH, { width: 600, pitch: 30 });
    const x = [...names.map((name) => partOf(name, BOTH).key), "answer"].map((key) => spots.get(key)!.x);
    expect(x).toEqual([...x].sort((one, other) => one - other));
    expect([x[0], x.at(-1)]).toEqual([ROOM.left, 600 - ROOM.right]);
    expect(spots.get("answer")!.y).toBeGreaterThan(spots.get(partOf(names[1]!, BOTH).key)!.y);
  });
});
