import { describe, expect, test } from "vitest";
import { parseAddress } from "../../src/core/address";
import type { Tensor } from "../../src/core/host";
import { row } from "../../src/core/tensor";
import { forward } from "../../src/engine/forward";
import type { AttentionPlace } from "../../src/state/attention.svelte";
import type { Run } from "../../src/state/run";
import { exponentials } from "../../src/core/vectors";
import { changesOfScores, changesOfSide, opsBetween, projected } from "../../src/views/attention/steps";
import { fixtures } from "../engine/fixtures";

const close = (got: ArrayLike<number>, wanted: ArrayLike<number>): void => {
  expect(got.length).toBe(wanted.length);
  const most = Math.max(1, ...Array.from(wanted, (x) => (Number.isFinite(x) ? Math.abs(x) : 0)));
  expect(Math.max(...Array.from(got, (x, i) => (x === wanted[i] ? 0 : Math.abs(x - wanted[i]!)))) / most).toBeLessThan(1e-5);
};

describe.each(fixtures())("the six steps of $name", ({ plan, weights, numbers }) => {
  const { values } = forward(plan, weights, numbers);
  const ops = new Map(plan.ops.map((op) => [op.out, op]));
  const value = (path: string): Tensor => values.get(path) ?? numbers.get(path)!;
  /** The rows of a matrix that are asked for, as a host gives them. */
  const asked = (at: string): Tensor => {
    const { path, index: [part] } = parseAddress(at), whole = weights.get(path)!;
    return part ? { shape: whole.shape.slice(1), data: row(whole, part[1]) } : whole;
  };
  const run = {
    op: (path: string) => ops.get(path), value: (at: string) => Promise.resolve(value(at)),
    weights: (names: string[]) => Promise.resolve(new Map(names.map((name) => [name, asked(name)]))),
  } as unknown as Run;
  const places = plan.ops.flatMap(({ out }) => /^(\w+\.blocks\.\d+\.(attn|cross))\.weights$/.exec(out)?.[1] ?? []);

  test("lead from X to Y, and every change of a score is one of them", () => {
    for (const at of places) {
      let scores = Array.from(row(value(`${at}.scores.product`), 0, 1));
      for (const op of changesOfScores(run, at)) {
        const added = op.op === "add" ? row(value(op.inputs![1]!), 0, 1) : null;
        const { factor = 1, cap = 0 } = op.by ?? {};
        expect(["add", "scale", "soft_cap"]).toContain(op.op);
        scores = scores.map((x, s) => (added ? x + added[s]! : op.op === "scale" ? x * factor : cap * Math.tanh(x / cap)));
        close(scores, row(value(op.out), 0, 1));
      }
      close(scores, row(value(`${at}.scores`), 0, 1));
      for (const side of ["q", "k"] as const) expect(["rotate", "rotate_grid", "norm"]).toEqual(expect.arrayContaining([...new Set(changesOfSide(run, at, side).map(({ op }) => op))]));
    }
    expect(opsBetween(run.op, "nowhere", places[0] + ".q")).toEqual([]);
  });

  test("X times the columns of a head is V, and exponentials over their sum are the weights", async () => {
    for (const at of places) {
      const made = await projected(run, { at } as AttentionPlace, "v", 0, value(`${at}.q`).shape.at(-1)!);
      close(made!.out, row(value(`${at}.v`), 0));
      const sinks = ops.get(`${at}.weights`)!.weights?.[0], masked = Array.from(row(value(`${at}.masked`), 0, 1));
      const { powers, sum } = exponentials(sinks ? [...masked, weights.get(sinks)!.data[0]!] : masked);
      close(powers.slice(0, masked.length).map((x) => x / sum), row(value(`${at}.weights`), 0, 1));
    }
  });
});
