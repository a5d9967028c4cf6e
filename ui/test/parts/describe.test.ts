import { expect, it } from "vitest";
import "../english";
import { firsts } from "../../src/parts/describe";

it("names the first of some with all that are written like it", () => {
  const said = (...shares: number[]): string => firsts(shares.map((x, i) => ({ x, i })), ({ x }) => x.toFixed(2), ({ i }) => `head ${i}`, "disjunction");
  expect(said(0.9312, 0.06)).toBe("head 0");
  expect(said(0.9312, 0.9299, 0.06)).toBe("head 0 or head 1");
  expect(said(1, 1, 1, 0.9999, 0.9)).toBe("head 0, head 1, or 2 others");
  expect(said()).toBe("");
});
