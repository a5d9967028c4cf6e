import { describe, expect, it } from "vitest";
import { piecesAfter, spaced, textOf, wordAt, type Word } from "../../src/views/tokens/pieces";

const span = (...places: ([number, number] | null)[]): { span: [number, number] | null }[] => places.map((one) => ({ span: one }));

describe("textOf", () => {
  it("begins a second text behind a mark", () => {
    expect(textOf(span(null, [0, 3], [4, 8], null, [0, 2], [3, 4], null))).toEqual([0, 0, 0, 0, 1, 1, 1]);
    expect(textOf(span([0, 1], null, [0, 1]))).toEqual([0, 0, 1]);
  });
  it("takes tokens of one character for one text", () => {
    expect(textOf(span([0, 1], [0, 1], [1, 2]))).toEqual([0, 0, 0]);
  });
});

const word: Word = {
  text: "bank", span: [4, 8], start: ["b", "a", "n", "k"], tokens: [],
  merges: [
    { left: "a", right: "n", rank: 3, pieces: ["b", "an", "k"] },
    { left: "an", right: "k", rank: 8, pieces: ["b", "ank"] },
    { left: "b", right: "ank", rank: 211, pieces: ["bank"] },
  ],
};

describe("piecesAfter", () => {
  it("says which piece each merge made", () => {
    expect(piecesAfter(word, 0)).toEqual({ pieces: ["b", "a", "n", "k"], made: null });
    expect([1, 2, 3].map((n) => piecesAfter(word, n).made)).toEqual([1, 1, 0]);
    expect(piecesAfter(word, 9).pieces).toEqual(["bank"]);
  });
});

it("finds the word of a character, else the one with most merges", () => {
  const short: Word = { ...word, text: "a", span: [0, 1], merges: [] };
  expect(wordAt([short, word], 0)).toBe(0);
  expect(wordAt([short, word], 7)).toBe(1);
  expect(wordAt([short, word], null)).toBe(1);
});

it("shows whitespace", () => {
  expect([" the", "a\n\tb", ""].map(spaced)).toEqual(["␣the", "a↵⇥b", "∅"]);
});
