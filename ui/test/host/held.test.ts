import { expect, test } from "vitest";
import { answersHeld } from "../../src/host/baked/held";

test("a small number is the same number as Python writes it", async () => {
  const run = { text: "a", edits: [] } as never;
  const held = [{ run, asks: ["circuit"], part: "circuit" }] as never;
  const parts = { read: async () => ({ json: { '["circuit",["share",4.6e-05]]': { edges: 3 } } }) } as never;
  const asked = (answersHeld({ held, about: {}, command: "" } as never, parts) as unknown as Record<string, (asked: object) => Promise<{ json: object }>>).circuit!;
  expect((await asked({ run, share: 0.000046 })).json).toEqual({ edges: 3 });
});
