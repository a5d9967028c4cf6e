import { expect, test } from "vitest";
import { aligned } from "../../src/core/align";

const shown = (a: string, b: string): string => {
  const [one, other] = [a.split(" "), b.split(" ")];
  return aligned(one, other).map(([i, j]) => `${i === null ? "-" : one[i]}/${j === null ? "-" : other[j]}`).join(" ");
};

test("what two texts share stands in one column, in every order of changes", () => {
  expect(shown("the keys to the cabinet", "the key to the cabinets here")).toBe("the/the keys/key to/to the/the cabinet/cabinets -/here");
  expect(shown("a b c", "b c")).toBe("a/- b/b c/c");
  expect(shown("b c", "a b x c")).toBe("-/a b/b -/x c/c");
  expect(shown("a b", "c d e")).toBe("a/c b/d -/e");
});

test("every place of both texts stands in one column, once and in order, however long they are", () => {
  for (const [n, m] of [[7, 5], [1200, 900], [0, 3], [3, 0]] as const) {
    const columns = aligned(Array.from({ length: n }, (_, i) => i % 5), Array.from({ length: m }, (_, i) => (i * 3) % 7));
    expect(columns.flatMap(([i]) => (i === null ? [] : [i]))).toEqual(Array.from({ length: n }, (_, i) => i));
    expect(columns.flatMap(([, j]) => (j === null ? [] : [j]))).toEqual(Array.from({ length: m }, (_, j) => j));
  }
});
