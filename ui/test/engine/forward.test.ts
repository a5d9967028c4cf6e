import { describe, expect, test } from "vitest";
import type { Edit } from "../../src/core/protocol";
import { axesOf, factsOf } from "../../src/engine/taps";
import { Decoding, NOTHING } from "../../src/engine/decoding";
import { check, forward, rerun } from "../../src/engine/forward";
import { difference, fixtures } from "./fixtures";

/** How far from PyTorch a whole network may end. */
const NEAR = 1e-4;

describe.each(fixtures())("$name", (one) => {
  const options = { other: one.other };

  test("every recorded value is PyTorch's", () => {
    const { values } = forward(one.plan, one.weights, one.numbers, one.edits, options);
    expect(one.values.size).toBeGreaterThan(10);
    for (const [path, expected] of one.values) {
      expect(difference(values.get(path)!, expected, 1), path).toBeLessThanOrEqual(NEAR);
    }
  });

  test("a rerun with the edits is a run with them, and shares what comes before", () => {
    const plain = forward(one.plan, one.weights, one.numbers);
    const again = rerun(plain, one.edits, options);
    const whole = forward(one.plan, one.weights, one.numbers, one.edits, options);
    expect([...again.values.keys()]).toEqual([...whole.values.keys()]);
    for (const [path, value] of whole.values) expect(again.values.get(path), path).toEqual(value);
    const first = one.plan.ops.findIndex((op) => one.edits.some((edit) => edit.at.split("[")[0] === op.out));
    for (const op of one.plan.ops.slice(0, Math.max(first, 0))) {
      expect(again.values.get(op.out)).toBe(plain.values.get(op.out));
    }
    const back = rerun(again, []);
    for (const [path, value] of plain.values) expect(back.values.get(path), path).toEqual(value);
  });

  test("tapped addresses have the axes of the taps, the others none", () => {
    const { values } = forward(one.plan, one.weights, one.numbers);
    const found = [...values].map(([path, value]) => [path, axesOf(path, value.shape.length)] as const);
    expect(Object.fromEntries(found.filter(([, axes]) => axes !== null))).toEqual(one.axes);
    const stored = Object.keys(one.axes).filter((path) => !path.endsWith(".masked"));
    expect(Object.keys(factsOf(values, new Set())).sort()).toEqual(stored.sort());
  });
});

test("the check finds a value that does not follow from its op, and none in a pass", () => {
  const one = fixtures()[0]!, pass = forward(one.plan, one.weights, one.numbers, one.edits, { other: one.other });
  expect(check(pass).recompute_max_abs).toBe(0);
  const edited = new Set(one.edits.map((edit) => edit.at.replace(/\[.*/, "")));
  const path = [...pass.values.keys()].find((at) => at.endsWith("ffn.out") && !edited.has(at))!, value = pass.values.get(path)!;
  const moved = { ...value, data: value.data.map((x, i) => (i === 3 ? x + 0.5 : x)) };
  expect(check({ ...pass, values: new Map([...pass.values, [path, moved]]) }).recompute_max_abs).toBeGreaterThanOrEqual(0.5);
});

test("every kind of edit occurs in the fixtures", () => {
  const kinds = new Set(fixtures().flatMap((one) => one.edits.map((edit) => edit.do)));
  expect([...kinds].sort()).toEqual(["close", "mean", "patch", "scale", "set", "zero"]);
});

test("how far the worst value is from PyTorch's", () => {
  let worst = 0, where = "";
  for (const one of fixtures()) {
    const { values } = forward(one.plan, one.weights, one.numbers, one.edits, { other: one.other });
    for (const [path, expected] of one.values) {
      const found = difference(values.get(path)!, expected, 1);
      if (found > worst) [worst, where] = [found, `${one.name} ${path}`];
    }
  }
  console.info(`worst of ${fixtures().length} runs: ${worst.toExponential(1)} of the largest number, at ${where}`);
  expect(worst).toBeLessThanOrEqual(NEAR);
});

describe("an edit that does not fit is one line", () => {
  const one = fixtures().find((fixture) => fixture.name === "decoder_pre_learned")!;
  const shape = one.values.get("decoder.blocks.0.attn.weights")!.shape;
  const at = "decoder.blocks.0.attn.weights", scores = "decoder.blocks.0.attn.scores", sum = "decoder.embed.sum";
  const none = "expected an address of this model, got another";
  const infinite = "expected finite numbers, got NaN or infinity; try another edit";
  const refused: [Edit, string][] = [
    [{ at: "decoder.blocks.9.attn.z", do: "zero" }, `decoder.blocks.9.attn.z: ${none}`],
    [{ at: `${scores}.product`, do: "zero" }, `${scores}.product: ${none}`],
    [{ at: `${at}[d=0]`, do: "zero" }, `${at}[d=0]: axis "d" is not one of "h t s"`],
    [{ at: `${at}[h=4]`, do: "zero" }, `${at}[h=4]: h=4 is outside 0..3`],
    [{ at: `${at}[h]`, do: "zero" }, `"${at}[h]": expected an index such as h=2, got "h"`],
    [{ at, do: "set" }, `${at}: expected a number to set, got none`],
    [{ at, do: "scale", value: [1] }, `${at}: expected a number to scale, got [1]`],
    [{ at, do: "set", value: [1, 2, 3] }, `${at}: expected an edit of shape [${shape}], got [3]; try a number`],
    [{ at, do: "patch" }, `${at}: expected another run to patch from, got none`],
    [{ at: `${at}[t=0,s=0]`, do: "mean" },
      `${at}[t=0,s=0]: expected positions to take the mean over, got one or none; try set`],
    [{ at: `${at}[t=0]`, do: "mend" as "mean" }, `${at}[t=0]: no edit is called "mend"`],
    [{ at: scores, do: "close" }, `${at}: every cell of a row is closed; leave one open`],
    [{ at: sum, do: "scale", value: 1e39 }, `${sum}: ${infinite}`],
    [{ at: sum, do: "close" }, `decoder.blocks.0.attn_norm.rstd: ${infinite}`],
  ];
  test.each(refused)("%j", (edit, message) => {
    expect(() => forward(one.plan, one.weights, one.numbers, [edit])).toThrow(new Error(message));
  });
});

test.each(["mixed", "delta", "decoder_rotary_grouped"])("%s: tokens read in pieces end as all at once", (name) => {
  const one = fixtures().find((fixture) => fixture.name === `${name}_edited`)!;
  const decoding = new Decoding(one.plan, one.weights, one.numbers, []), ids = [...one.numbers.get("decoder.ids")!.data];
  let read = decoding.read(NOTHING, ids.slice(0, 2));
  for (const id of ids.slice(2)) read = decoding.read(read.past, [id]);
  const whole = forward(one.plan, one.weights, one.numbers).values.get("head.logits")!;
  const last = whole.data.slice(-read.logits.length);
  expect(difference({ shape: [last.length], data: read.logits }, { shape: [last.length], data: last }, 1e-30)).toBeLessThanOrEqual(NEAR);
});
