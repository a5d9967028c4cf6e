/** What is written next: which tokens may be drawn, and which beams go on. Python's own texts: tests/explorer/browser. */

import { describe, expect, test } from "vitest";
import { chosen, controlled, logSoftmax, type Settings } from "../../src/engine/writing/sampling";
import { Search } from "../../src/engine/writing/search";
import { random } from "./fixtures";

const PLAIN: Settings = {
  max_new_tokens: 9, min_new_tokens: 0, beams: 1, temperature: 0, top_k: null, top_p: null, seed: 0, length_penalty: 1,
  early_stopping: false, repetition_penalty: 1, no_repeat_ngram: null, end_ids: [], start_id: null, forced_first_id: null,
  forced_last_id: null, banned_ids: [], first_banned_ids: [],
};
const some = (n: number, seed: number): Float64Array => {
  const next = random(seed);
  return Float64Array.from({ length: n }, () => 6 * next());
};

/** Every token that some random number draws. */
function drawn(scores: Float64Array, settings: Partial<Settings>): number[] {
  const all = Array.from({ length: 4000 }, (_, i) => chosen(scores, { ...PLAIN, temperature: 1, ...settings }, () => i / 4000));
  return [...new Set(all)].sort((a, b) => a - b);
}

describe("what may be drawn", () => {
  test.each([0.05, 0.3, 0.6, 0.9, 0.99])("top-p %f: the fewest that reach it", (p) => {
    for (let seed = 1; seed < 4; seed++) {
      const scores = some(12, seed), shares = logSoftmax(scores).map(Math.exp), kept: number[] = [];
      for (const id of [...shares.keys()].sort((a, b) => shares[b]! - shares[a]!)) {
        if (kept.reduce((sum, one) => sum + shares[one]!, 0) < p) kept.push(id);
      }
      expect(drawn(scores, { top_p: p })).toEqual(kept.sort((a, b) => a - b));
    }
  });

  test("top-k: the k largest, and all that equal the last of them", () => {
    const scores = Float64Array.of(1, 3, 2, 3, 2, 0);
    expect(drawn(scores, { top_k: 1 })).toEqual([1, 3]);
    expect(drawn(scores, { top_k: 3 })).toEqual([1, 2, 3, 4]);
    expect(drawn(scores, { top_k: 99 })).toEqual([0, 1, 2, 3, 4, 5]);
  });

  test("greedy: the first of the largest", () => {
    expect(chosen(Float64Array.of(1, 3, 2, 3), PLAIN, () => 0.99)).toBe(1);
  });
});

describe("what is controlled", () => {
  const made = (settings: Partial<Settings>, ids: number[], nPrompt = 2): number[] =>
    [...controlled(Float64Array.of(2, -2, 4, 1), ids, nPrompt, 5, { ...PLAIN, ...settings })];
  const NO = -Infinity;
  test.each<[string, Partial<Settings>, number[], number[]]>([
    ["a penalty for what is there, on both sides of 0", { repetition_penalty: 2 }, [0, 1, 1], [1, -4, 4, 1]],
    ["a pair that is there", { no_repeat_ngram: 2 }, [3, 2, 3], [2, -2, NO, 1]],
    ["no end before the minimum", { min_new_tokens: 2, end_ids: [3] }, [0, 0, 1], [2, -2, 4, NO]],
    ["the end at the minimum", { min_new_tokens: 1, end_ids: [3] }, [0, 0, 1], [2, -2, 4, 1]],
    ["banned", { banned_ids: [2, 77] }, [0, 0], [2, -2, NO, 1]],
    ["banned at first", { first_banned_ids: [2] }, [0, 0], [2, -2, NO, 1]],
    ["no longer first", { first_banned_ids: [2] }, [0, 0, 0], [2, -2, 4, 1]],
    ["the last one", { forced_last_id: 1 }, [0, 0, 0, 0, 0, 0], [NO, 0, NO, NO]],
    ["not yet the last one", { forced_last_id: 1 }, [0, 0, 0, 0, 0], [2, -2, 4, 1]],
  ])("%s", (_, settings, ids, expected) => expect(made(settings, ids)).toEqual(expected));
});

describe("beams", () => {
  const settings = { ...PLAIN, beams: 2, end_ids: [3] };
  const begun = (shares: number[]): Search => {
    const search = new Search([0], settings, 5);
    search.advance([Float32Array.from(shares, Math.log)]);
    return search;
  };
  test.each([
    [[0.4, 0.3, 0.1, 0.2], 0],
    [[0.4, 0.1, 0.2, 0.3], 1],
    [[0.2, 0.1, 0.3, 0.4], 1],
  ])("an end counts among the best few alone: %j", (shares, n) => {
    const search = begun(shares);
    expect(search.finished).toHaveLength(n);
    expect(search.slots.map((slot) => slot.written[0])).toEqual([0, 1, 2].sort((a, b) => shares[b]! - shares[a]!).slice(0, 2));
  });

  test("the best texts of all are found where the beams hold every text", () => {
    const table = Array.from({ length: 4 }, (_, i) => logSoftmax(some(4, 20 + i))), limit = 3;
    const all: { written: number[]; score: number }[] = [];
    const grow = (written: number[], total: number): void => {
      if (written.at(-1) === 3 || written.length === limit) return void all.push({ written, score: total / written.length });
      table[written.at(-1) ?? 0]!.forEach((log, id) => grow([...written, id], total + log));
    };
    grow([], 0);
    const search = new Search([0], { ...settings, beams: 64 }, limit);
    while (!search.done) search.advance(search.slots.map((slot) => Float32Array.from(table[slot.written.at(-1) ?? 0]!)));
    const best = all.sort((a, b) => b.score - a.score);
    search.best().slice(0, 5).forEach((found, i) => {
      expect(found.written).toEqual(best[i]!.written);
      expect(found.score).toBeCloseTo(best[i]!.score, 5);
    });
  });
});
