import { expect, test } from "vitest";
import { forward } from "../../src/engine/forward";
import { difference, load } from "./fixtures";

/** `python -m benchmarks.explorer` measures how long an edit of it takes. */
const one = load("speed");

test("a model of 4 + 4 layers of width 128 over 12 + 14 tokens says what PyTorch says", () => {
  const plain = forward(one.plan, one.weights, one.numbers);
  expect(difference(plain.values.get("head.logits")!, one.values.get("head.logits")!, 1)).toBeLessThanOrEqual(1e-4);
});
