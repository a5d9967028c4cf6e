/** What a page of exercises keeps: beside other pages, from earlier versions, and where the browser keeps nothing. */

import { afterEach, describe, expect, test, vi } from "vitest";
import { Progress } from "../../src/exercises/progress.svelte";
import type { ExerciseSet } from "../../src/judge/exercise";

const KEY = "clearhead.exercises";

function setOf(name: string, version = "1"): ExerciseSet {
  return { format: "clearhead-exercises/1", name, title: name, version, clearhead: "0.0.7", models: [], exercises: [] };
}

/** A browser's storage with this content; null for one that refuses. */
function storage(content: string | null = ""): Map<string, string> {
  const kept = new Map(content ? [[KEY, content]] : []);
  const refuse = (): never => { throw new Error("refused"); };
  const get = (key: string): string | null => kept.get(key) ?? null, set = (key: string, value: string): unknown => kept.set(key, value);
  vi.stubGlobal("localStorage", { getItem: content === null ? refuse : get, setItem: content === null ? refuse : set });
  return kept;
}

const never = (): string => expect.unreachable("nothing is judged again");

afterEach(() => void vi.unstubAllGlobals());

describe("progress", () => {
  test("of two pages in one browser stays, whichever wrote last", () => {
    storage();
    const masks = new Progress(setOf("masks"), never), again = new Progress(setOf("masks"), never), norms = new Progress(setOf("norms"), never);
    masks.keep("cheat", { choice: 1 }, "right");
    norms.keep("mean", { number: 2 }, "sum");
    again.keep("window", { number: 3 }, "other");
    const { sets } = JSON.parse(masks.file) as { sets: Record<string, { clearhead: string; judged: object }> };
    expect(sets.norms!.judged).toEqual({ mean: "sum" });
    expect(new Progress(setOf("masks"), never).judged("cheat")).toBe("right");
    expect(again.judged("cheat")).toBe("right");
    expect(sets.masks!.clearhead).toBe("0.0.7");
    expect(masks.refused).toBe(false);
  });

  test("on an earlier version of the page is judged again, without exercises that are gone", () => {
    storage();
    const before = new Progress(setOf("masks", "0"), never);
    before.keep("cheat", { choice: 1 }, "right");
    before.keep("gone", { choice: 2 }, "right");
    const now = new Progress(setOf("masks"), (name) => (name === "gone" ? null : "other"));
    expect(now.judged("cheat")).toBe("other");
    expect(now.answer("cheat")).toEqual({ choice: 1 });
    expect(now.answer("gone")).toBeNull();
    expect(now.right).toBe(0);
  });

  test.each(["{", "3", '{"format": "clearhead-exercises/1", "sets": {"masks": null, "norms": {"answers": 3}}}'])("that somebody broke is left out: %s", (content) => {
    storage(content);
    const one = new Progress(setOf("masks"), never);
    one.keep("cheat", { choice: 1 }, "right");
    expect(one.right).toBe(1);
  });

  test("lasts as long as the page where the browser keeps nothing, and says so", () => {
    storage(null);
    const one = new Progress(setOf("masks"), never);
    expect(one.refused).toBe(true);
    one.keep("cheat", { choice: 1 }, "right");
    expect(one.right).toBe(1);
    expect(one.file).toContain('"cheat": "right"');
  });
});
