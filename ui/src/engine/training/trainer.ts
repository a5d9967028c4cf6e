/** A network that learns from examples, from random weights on: in steps, between which it can be looked at and changed. */

import type { Plan } from "../../core/protocol";
import { floats, type Floats } from "../../core/tensor";
import { backward, forwardBatch, type BatchPass, type Example, type Off } from "./batch";

/** What is learned: as clearhead_lab/learning_page.py writes it. */
export interface Lesson {
  plan: Plan;
  /** By name: the shape, and the mean and deviation of the numbers of a new network; or the name of the parameter that it is. */
  parameters: Record<string, { shape: number[]; mean: number; std: number } | { same: string }>;
  train: Example[];
  unseen: Example[];
}

/** Examples a step, the rate of Adam, the steps in which it rises, and those after which it has fallen to half. */
const BATCH = 16, RATE = 0.006, WARMUP = 20, HALF = 1000;

/** Sentences of one pass that only looks. */
const AT_ONCE = 50;
const FIRST = 0.9, SECOND = 0.999, EPS = 1e-8;

/** Adam (Kingma and Ba 2014): each parameter moves by the mean of its gradients over their size. */
class Adam {
  #steps = 0;
  readonly #moments = new Map<Floats, [Float32Array, Float32Array]>();

  step(gradients: ReadonlyMap<Floats, Float32Array>, rate: number): void {
    const steps = ++this.#steps, size = rate / (1 - FIRST ** steps), whole = 1 - SECOND ** steps;
    for (const [weight, g] of gradients) {
      const { data } = weight, [m, v] = this.#moments.get(weight) ?? [new Float32Array(g.length), new Float32Array(g.length)];
      this.#moments.set(weight, [m, v]);
      for (let i = 0; i < g.length; i++) {
        m[i] = FIRST * m[i]! + (1 - FIRST) * g[i]!;
        v[i] = SECOND * v[i]! + (1 - SECOND) * g[i]! * g[i]!;
        data[i]! -= (size * m[i]!) / (Math.sqrt(v[i]! / whole) + EPS);
      }
    }
  }
}

export class Trainer {
  readonly weights = new Map<string, Floats>();
  steps = 0;
  readonly #adam = new Adam();
  readonly #random: () => number;

  constructor(readonly lesson: Lesson, seed: number) {
    this.#random = random(seed);
    for (const [name, one] of Object.entries(lesson.parameters)) {
      this.weights.set(name, "same" in one ? this.weights.get(one.same)! : floats(one.shape));
      if (!("same" in one)) draw(this.weights.get(name)!.data, one, this.#random);
    }
  }

  /** One step on examples drawn by chance. Returns their loss before it. */
  step(off: Off = []): number {
    const { plan, train } = this.lesson;
    const chosen = Array.from({ length: BATCH }, () => train[Math.floor(this.#random() * train.length)]!);
    const { loss, gradients } = backward(plan, this.weights, this.pass(chosen, off), off);
    this.#adam.step(gradients, (RATE * Math.min(1, ++this.steps / WARMUP)) / (1 + Math.max(0, this.steps - WARMUP) / HALF));
    return loss;
  }

  /** Draws what one of `heads` heads of an attention asks, offers and hands on anew. */
  forget(attention: string, head: number, heads: number): void {
    for (const name of ["q", "k", "v"].map((one) => `${attention}.${one}.weight`)) {
      const { data } = this.weights.get(name)!, each = data.length / heads, drawn = this.lesson.parameters[name]!;
      if (!("same" in drawn)) draw(data.subarray(head * each, (head + 1) * each), drawn, this.#random);
    }
  }

  pass(examples: readonly Example[], off: Off = []): BatchPass {
    return forwardBatch(this.lesson.plan, this.weights, examples, off);
  }

  /** The share of examples whose every word is the likeliest after the right ones before it: that is, is written so. */
  test(examples: readonly Example[], off: Off = []): number {
    let exact = 0;
    for (let at = 0; at < examples.length; at += AT_ONCE) {
      const some = examples.slice(at, at + AT_ONCE), pass = this.pass(some, off), said = this.said(pass), width = said.length / some.length;
      exact += some.filter((_, i) => said.subarray(i * width, (i + 1) * width).every((id, t) => [id, -1].includes(pass.labels[i * width + t]!))).length;
    }
    return exact / examples.length;
  }

  /** What it writes by itself from an example's first words on: the likeliest word each time, up to the last label, and no
   *  more words than the right answer has. */
  write({ ids, labels }: Example, off: Off = []): number[] {
    const stack = ids.decoder ? "decoder" : "encoder", first = labels.findIndex((id) => id >= 0) + 1, written: number[] = [];
    while (written.length <= labels.length - first && written.at(-1) !== labels.at(-1)) {
      written.push(this.said(this.pass([{ ids: { ...ids, [stack]: [...ids[stack]!.slice(0, first), ...written] }, labels: [] }], off)).at(-1)!);
    }
    return written;
  }

  /** The likeliest id at each place. */
  said(pass: BatchPass): Int32Array {
    const { shape, data } = pass.values.get(this.lesson.plan.ops.at(-1)!.out)!, v = shape.at(-1)!;
    return Int32Array.from({ length: data.length / v }, (_, i) => {
      let best = 0;
      for (let j = 1; j < v; j++) if (data[i * v + j]! > data[i * v + best]!) best = j;
      return best;
    });
  }
}

/** The numbers of a new parameter. */
function draw(data: Float32Array, { mean, std }: { mean: number; std: number }, uniform: () => number): void {
  for (let i = 0; i < data.length; i++) data[i] = mean + (std && std * normal(uniform));
}

/** Box and Muller 1958. */
function normal(uniform: () => number): number {
  return Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
}

/** Numbers in [0, 1) that a seed repeats (mulberry32). */
export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = Math.imul(state ^ (state >>> 15), state | 1);
    x = (x + Math.imul(x ^ (x >>> 7), x | 61)) ^ x;
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
}
