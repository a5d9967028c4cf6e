import { expect, test } from "vitest";
import type { Edit } from "../../src/core/protocol";
import { rerun, run } from "../../src/engine/run";
import { difference, load } from "./fixtures";

/** Milliseconds within which a reader sees an edit at once. */
const AT_ONCE = 50;

const one = load("speed");

/** Milliseconds by the clock; and of this process alone, the median, which a busy machine does not stretch. */
function times(act: (i: number) => void): { p50: number; p95: number; own: number } {
  const clock: number[] = [], own: number[] = [];
  for (let i = 0; i < 40; i++) {
    const start = performance.now(), before = process.cpuUsage();
    act(i);
    const { user, system } = process.cpuUsage(before);
    if (i < 10) continue;
    clock.push(performance.now() - start);
    own.push((user + system) / 1000);
  }
  const at = (times: number[], share: number): number => times.sort((a, b) => a - b)[Math.floor(times.length * share)]!;
  return { p50: at(clock, 0.5), p95: at(clock, 0.95), own: at(own, 0.5) };
}

test("a model of 4 + 4 layers of width 128 over 12 + 14 tokens says what PyTorch says, and at once", () => {
  const plain = run(one.plan, one.weights, one.numbers);
  expect(difference(plain.values.get("head.logits")!, one.values.get("head.logits")!, 1)).toBeLessThanOrEqual(1e-4);
  const edit = (at: string, i: number): Edit[] => [{ at, do: "scale", value: 1 + i / 100 }];
  const taken = {
    "a whole run": times(() => run(one.plan, one.weights, one.numbers)),
    "an edit in the first block of the encoder": times((i) => rerun(plain, edit("encoder.blocks.0.attn.z[h=1]", i))),
    "an edit in the last block of the decoder": times((i) => rerun(plain, edit("decoder.blocks.3.cross.z[h=1]", i))),
  };
  for (const [what, { p50, p95, own }] of Object.entries(taken)) {
    console.info(`${what}: p50 ${p50.toFixed(1)} ms, p95 ${p95.toFixed(1)} ms, own ${own.toFixed(1)} ms`);
    expect(own, what).toBeLessThan(AT_ONCE);
  }
}, 60_000);
