import { describe, expect, it, vi } from "vitest";
import type { Host, Tensor } from "../../src/core/host";
import type { Op, RunReply } from "../../src/core/protocol";
import { cosine } from "../../src/core/vectors";
import { Run } from "../../src/state/run";
import { embedSteps } from "../../src/views/embedding/embedding";

const OPS: Op[] = [
  { out: "decoder.embed.lookup", op: "lookup", inputs: ["decoder.ids"], weights: ["decoder.embed.tokens.weight"] },
  { out: "decoder.embed.scaled", op: "scale", inputs: ["decoder.embed.lookup"], by: { factor: 2 } },
  { out: "decoder.embed.types", op: "lookup", inputs: ["decoder.types"], weights: ["decoder.embed.types.weight"] },
  { out: "decoder.embed.tokens", op: "add", inputs: ["decoder.embed.scaled", "decoder.embed.types"] },
  { out: "decoder.blocks.0.resid_pre", op: "copy", inputs: ["decoder.embed.tokens"] },
];
const WEIGHTS: Record<string, number[]> = { "decoder.embed.tokens.weight[i=7]": [1, -3], "decoder.embed.types.weight[i=1]": [0.5, 0] };
const STORED: Record<string, number[]> = { "decoder.embed.tokens[t=1]": [2.5, -9] };

describe("embedSteps", () => {
  it("makes each step of one position, asking for rows of tables and never for a table", async () => {
    const ask = vi.fn(async (name: string, asked: { at: string[] }) => {
      const known = name === "weights" ? WEIGHTS : STORED;
      const tensors = new Map(asked.at.map((at): [string, Tensor] => {
        if (!known[at]) throw new Error(`${at}: not expected`);
        return [at, { shape: [2], data: Float32Array.from(known[at]) }];
      }));
      return { json: {}, tensors };
    });
    const token = { id: 7, text: "x", span: null, type: 1 };
    const reply = { tokens: { decoder: [{ ...token, id: 3 }, token] }, facts: { "decoder.embed.tokens": { shape: [2, 2], axes: "t d" } } };
    const plan = { config: { decoder: { input: { kind: "tokens" } } }, ops: OPS, masks: {} };
    const run = new Run({ ask } as unknown as Host, { text: "", target: null, edits: [] }, reply as unknown as RunReply, new Map(), plan as never);
    const steps = await embedSteps(run, "decoder", 1);
    expect(steps.map(({ op, at, row }) => [op.out.split(".").at(-1), at, ...row])).toEqual([
      ["lookup", 1, 1, -3], ["scaled", 1, 2, -6], ["types", 1, 0.5, 0], ["tokens", 1, 2.5, -9],
    ]);
  });
});

it("measures angles", () => {
  expect(cosine([3, 0], [2, 2])).toBeCloseTo(Math.SQRT1_2, 9);
  expect(cosine([0, 0], [1, 1])).toBe(0);
});
