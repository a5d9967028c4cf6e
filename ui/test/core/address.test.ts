import { describe, expect, test } from "vitest";
import { formatAddress, indexed, parseAddress, view, type Index } from "../../src/core/address";
import { floats } from "../../src/core/tensor";

describe("an address", () => {
  test.each([
    ["decoder.blocks.3.attn.weights", "decoder.blocks.3.attn.weights", []],
    ["a.b[h=2,t=6]", "a.b", [["h", 2], ["t", 6]]],
    [" a.b[ h = 2 , t=-1 ] ", "a.b", [["h", 2], ["t", -1]]],
    ["head[]", "head", []],
  ])("%s is a path and an index", (text, path, index) => {
    expect(parseAddress(text)).toEqual({ path, index });
  });

  test.each(["a.b[h=2,t=6]", "x", "decoder.blocks.0.ffn.pre[f=-3]"])("%s is written as it was read", (text) => {
    expect(formatAddress(parseAddress(text))).toBe(text);
  });

  test.each(["", "1a", "a b", "a[h=2", "a]h", "a[h=2]b", "-"])("%j is none", (text) => {
    expect(() => parseAddress(text)).toThrow(`"${text}": expected an address such as`);
  });

  test.each([["a[h]", "h"], ["a[h=x]", "h=x"], ["a[hh=1]", "hh=1"], ["a[h=1.5]", "h=1.5"], ["a[H=1]", "H=1"]])(
    "%s has no index",
    (text, part) => expect(() => parseAddress(text)).toThrow(`"${text}": expected an index such as h=2, got "${part}"`),
  );
});

describe("a part of a tensor", () => {
  const tensor = floats([2, 3, 4], Float32Array.from({ length: 24 }, (_, i) => i));
  const part = (...index: Index[]): { shape: number[]; data: number[] } => {
    const { shape, data } = indexed(tensor, "h t s", index);
    return { shape, data: [...data] };
  };

  test("by leading axes is a view", () => {
    const row = indexed(tensor, "h t s", [["h", 1], ["t", -1]]);
    expect([...row.data]).toEqual([20, 21, 22, 23]);
    expect(row.data.buffer).toBe(tensor.data.buffer);
    expect(indexed(tensor, "h t s", [])).toBe(tensor);
    expect(part(["s", 3], ["h", 0], ["t", 2])).toEqual({ shape: [], data: [11] });
  });

  test("by other axes has its numbers in order", () => {
    expect(part(["s", 1])).toEqual({ shape: [2, 3], data: [1, 5, 9, 13, 17, 21] });
    expect(part(["t", 1])).toEqual({ shape: [2, 4], data: [4, 5, 6, 7, 16, 17, 18, 19] });
    expect(part(["h", 1], ["s", 0])).toEqual({ shape: [3], data: [12, 16, 20] });
    expect(view(tensor, "h t s", [["s", 1]])).toMatchObject({ shape: [2, 3], strides: [12, 4], offset: 1 });
  });

  test("by an axis that it does not have is refused", () => {
    expect(() => indexed(tensor, "h t s", [["d", 0]], "a")).toThrow('a: axis "d" is not one of "h t s"');
    expect(() => indexed(tensor, "h t s", [["t", 3]], "a")).toThrow("a: t=3 is outside 0..2");
    expect(() => indexed(tensor, "h t s", [["t", -4]], "a")).toThrow("a: t=-4 is outside 0..2");
  });
});
