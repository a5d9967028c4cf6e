import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { Plan } from "../../src/core/protocol";
import { toFloats, type Floats } from "../../src/core/tensor";
import { backward, forwardBatch, type Example } from "../../src/engine/training/batch";
import { Trainer, type Lesson } from "../../src/engine/training/trainer";
import { difference, tensorsOf } from "./fixtures";

const folder = process.env.CLEARHEAD_FIXTURES!;
const read = <T>(name: string): T => JSON.parse(readFileSync(join(folder, `${name}.json`), "utf-8")) as T;

function open(name: string): { plan: Plan; examples: Example[]; weights: Map<string, Floats>; gradients: Map<string, Floats>; loss: number } {
  const { plan, ids, labels, same } = read<{ plan: Plan; ids: Record<string, number[][]>; labels: number[][]; same: Record<string, string> }>(name), tensors = tensorsOf(name);
  const part = (group: string): Map<string, Floats> => new Map([...tensors].filter(([key]) => key.startsWith(group)).map(([key, one]) => [key.slice(group.length), toFloats(one)]));
  const examples = labels.map((row, i) => ({ labels: row, ids: Object.fromEntries(Object.entries(ids).map(([stack, rows]) => [stack, rows[i]!])) }));
  const own = part("weights/"), weights = new Map(Object.entries(same).map(([path, first]) => [path, own.get(first)!]));
  return { plan, examples, weights, gradients: part("gradients/"), loss: tensors.get("loss")!.data[0]! };
}

test.each(read<string[]>("trained"))("%s: every gradient is PyTorch's", (name) => {
  const { plan, examples, weights, gradients, loss } = open(name), found = backward(plan, weights, forwardBatch(plan, weights, examples));
  expect(Math.abs(found.loss - loss)).toBeLessThan(1e-5);
  expect(gradients.size).toBe(weights.size);
  for (const [path, expected] of gradients) {
    const own = weights.get(path)!, data = found.gradients.get(own)!;
    expect(difference({ shape: own.shape, data }, expected, 1e-2), path).toBeLessThanOrEqual(1e-5);
  }
});

/** The decoder, which is to say each word of a sentence again. */
function lesson(): Lesson {
  const { plan, examples, weights } = open("trained_decoder_learned");
  const parameters = Object.fromEntries([...weights].map(([name, { shape }]) => [name, { shape, mean: name.endsWith("norm.weight") ? 1 : 0, std: shape.length > 1 ? 0.2 : 0 }]));
  const train = examples.map(({ ids }) => ({ ids, labels: ids.decoder! }));
  return { plan, parameters, train, unseen: train };
}

test("training makes every answer right, and the same seed the same losses", () => {
  const [one, other] = [new Trainer(lesson(), 3), new Trainer(lesson(), 3)], { unseen } = lesson();
  const before = one.test(unseen), losses = Array.from({ length: 150 }, () => one.step());
  expect(before).toBeLessThan(1);
  expect(one.test(unseen)).toBe(1);
  expect(losses.slice(0, 5)).toEqual(Array.from({ length: 5 }, () => other.step()));
});

test("what is switched off learns nothing", () => {
  const one = new Trainer(lesson(), 3), path = "decoder.blocks.0.attn.z", position = one.weights.get("decoder.positions.table.weight")!;
  const off = [{ path, head: 1 }, { path: "decoder.embed.positions" }], pass = one.pass(lesson().train, off);
  const { shape, data } = pass.values.get(path)!, each = data.length / shape[0]!, { gradients } = backward(lesson().plan, one.weights, pass, off);
  expect(data.subarray(each, 2 * each).every((x) => x === 0)).toBe(true);
  expect(data.subarray(0, each).some((x) => x !== 0)).toBe(true);
  expect(gradients.get(position)!.every((x) => x === 0)).toBe(true);
  const value = one.weights.get("decoder.blocks.0.attn.v.weight")!, of = gradients.get(value)!;
  expect(of.subarray(of.length / 4, of.length / 2).every((x) => x === 0)).toBe(true);
  expect(of.subarray(0, of.length / 4).some((x) => x !== 0)).toBe(true);
});

test("a head that is drawn anew has other numbers, and the others their own", () => {
  const one = new Trainer(lesson(), 3), name = "decoder.blocks.0.attn.k.weight", { data } = one.weights.get(name)!, before = data.slice(), each = data.length / 4;
  one.forget("decoder.blocks.0.attn", 1, 4);
  const changed = Array.from(data, (x, i) => x !== before[i]);
  expect(changed).toEqual(changed.map((_, i) => Math.floor(i / each) === 1));
});
