/** The judge in the page says of simulated learners what Python's judge says; tests/explorer/exercise_fixtures.py writes them. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { readings } from "../../src/core/numbers";
import { open, type Opened } from "../../src/exercises/opened";
import type { Answer } from "../../src/judge/exercise";
import { Judge } from "../../src/judge/judge";
import { holds, numberOf, type Runs, type Term } from "../../src/judge/language";

interface Learner { exercise: string; expected: string; answer: Answer }
interface Page { parts: Record<string, string>; learners: Learner[]; spelled: (Learner & { text: string })[] }

const folder = process.env.CLEARHEAD_FIXTURES ?? "";
const pages = JSON.parse(readFileSync(join(folder, "exercises.json"), "utf-8")) as Page[];

function opened({ parts }: Page): Promise<Opened> {
  return open((name) => parts[name] ?? null);
}

async function judges(page: Page): Promise<Map<string, Judge>> {
  const { set, subjects } = await opened(page);
  return new Map(set.exercises.map((one) => [one.name, new Judge(one, subjects.get(one.model)!)]));
}

describe.each(pages.map((page, i) => [i, page] as const))("set %i", (_, page) => {
  test("judges every learner as it deserves", { timeout: 600_000 }, async () => {
    const judge = await judges(page);
    const wrong = page.learners.flatMap((one) => {
      const said = judge.get(one.exercise)!.judge(one.answer);
      return said === one.expected ? [] : [{ ...one, said }];
    });
    expect(page.learners.length).toBeGreaterThan(15);
    expect(wrong).toEqual([]);
  });
});

test("400 answers in all spellings are judged as the numbers that they mean", { timeout: 600_000 }, async () => {
  const wrong: unknown[] = [];
  for (const page of pages) {
    const judge = await judges(page);
    for (const one of page.spelled) {
      const answers = one.text ? readings(one.text).map((number) => ({ number })) : [one.answer];
      const said = answers.length > 0 ? judge.get(one.exercise)!.best(answers)[1] : "no number";
      if (said !== one.expected) wrong.push({ ...one, said });
    }
  }
  expect(pages.flatMap((page) => page.spelled)).toHaveLength(400);
  expect(wrong).toEqual([]);
});

test("what is no answer or not allowed is named", async () => {
  const all = await Promise.all(pages.map(judges)), judge = all.find((one) => one.has("look-back"))!.get("look-back")!;
  const at = "decoder.blocks.0.attn";
  expect(judge.judge({})).toBe("nothing");
  expect(judge.judge({ edits: [], change: {} })).toBe("nothing");
  expect(judge.judge({ number: 3 })).toBe("outside");
  expect(judge.judge({ edits: [{ at: `${at}.z`, do: "zero" }] })).toBe("outside");
  expect(judge.judge({ edits: [{ at: `${at}.scores`, do: "mean" }] })).toBe("outside");
  expect(judge.judge({ edits: [{ at: `${at}.scores`, do: "set", value: 1e5 }] })).toBe("outside");
  expect(judge.judge({ change: { positions: "none" } })).toBe("outside");
  expect(judge.judge({ edits: [{ at: `${at}.scores[h=0]`, do: "close" }] })).toBe("fails");
  expect(judge.judge({ edits: [{ at: `${at}.scores[h=9]`, do: "zero" }] })).toBe("fails");
});

describe("the language", () => {
  const square = { shape: [2, 3], data: [1, 2, 3, 4, 5, 6] };
  const runs: Runs = {
    groups: { unseen: ["a", "b"] },
    value: (_, on, plain) => (plain ? { shape: [], data: [0] } : { ...square, data: square.data.map((x) => (on === "b" ? 10 * x : x)) }),
    ids: () => [7, 8],
    answer: () => 3,
  };
  const number = (term: Term): unknown => numberOf(term, runs, "shown");
  const X: Term = ["value", "x"];

  test.each<[Term, number[], number[]]>([
    [["sum", X], [], [21]], [["means", X], [2], [2, 5]], [["argmax", X], [2], [2, 2]], [["at", X, -1, 0], [], [4]],
    [["diagonal", X, 1], [2], [2, 6]], [["triangle", X, 1], [3], [2, 3, 6]], [["drop", X, 1], [1, 3], [4, 5, 6]], [["keep", X, -1], [1, 3], [1, 2, 3]],
    [["-", X, ["answer"]], [2, 3], [-2, -1, 0, 1, 2, 3]], [["share", ">=", X, 4], [], [0.5]], [["ids", "decoder"], [2], [7, 8]],
    [["value", "x", ".b"], [2, 3], [1, 2, 3, 4, 5, 6]], [["count", X], [], [6]], [["plain", "x"], [], [0]],
  ])("%j", (term, shape, data) => {
    expect(number(term)).toEqual({ shape, data });
  });

  test("conditions hold of every number, and of every or some input", () => {
    const says = (term: Term): boolean => holds(term, runs, "shown");
    expect(says([">=", X, 1])).toBe(true);
    expect(says([">=", X, 2])).toBe(false);
    expect(says(["every", "unseen", ["<=", X, 6]])).toBe(false);
    expect(says(["some", "unseen", ["<=", X, 6]])).toBe(true);
    expect(says(["and", ["=", ["answer"], 3], ["not", ["=", ["answer"], 2]]])).toBe(true);
    expect(says([">=", 0.9 - 5e-6, 0.9])).toBe(true);
    expect(() => says(["~", 1, 2])).toThrow("no such relation");
    expect(() => number(["mode", X])).toThrow("no such operation");
  });
});
