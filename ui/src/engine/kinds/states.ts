/** A state that forgets and is corrected: what is left of each position at a later one, and what that corrects. */

import { floats, type Floats } from "../../core/tensor";
import { sum } from "../../core/vectors";
import { setting } from "../functions";
import { ofInput, ofWeight, products, taken, type Call, type Given, type OpKind } from "../kind";

export const STATES = {
  /** Scores times what is left of s at t: exp of the sum of the decays, t h, after s up to t; 0 for a later s. And times the
   *  step of s, s h, if there are steps. */
  decay: {
    inputs: [2, 3],
    compute: ({ x: [scores, decays, steps] }) => {
      const { shape, data } = scores!, [heads, n] = shape as [number, number];
      const left = ofPairs(heads, n, (h, t, s, out) => (t > s ? out(t - 1, s) * Math.exp(decays!.data[t * heads + h]!) : steps?.data[s * heads + h] ?? 1));
      return floats(shape, left.data.map((share, i) => share * data[i]!));
    },
    needs: ({ op, index }) => [ofInput(op, 0, index), ...op.inputs!.slice(1).map((_, i) => ofInput(op, i + 1, [null, index[0]!]))],
    explain: ({ index: [, t, s] }, [score, decays, steps]) => ({
      form: "function", name: "scale", of: score!.term(),
      settings: { factor: s! > t! ? 0 : (steps?.term(s).value ?? 1) * Math.exp(between(decays!, s!, t!)) },
    }),
  },
  /** d t s: step_s Σ c_t b_s exp(rate (step after s up to t)), of each channel. */
  implied_weights: {
    inputs: [3, 3],
    compute: ({ x: [c, b, steps], w: [rates] }) => {
      const [n, width] = c!.shape as [number, number], channels = steps!.shape[1]!;
      return ofPairs(channels, n, (d, t, s) => {
        let past = 0, total = 0;
        for (let u = s + 1; u <= t; u++) past += steps!.data[u * channels + d]!;
        for (let i = 0; i < width; i++) total += c!.data[t * width + i]! * b!.data[s * width + i]! * Math.exp(rates!.data[d * width + i]! * past);
        return steps!.data[s * channels + d]! * total;
      });
    },
    needs: ({ op, index: [d, t, s] }) => [ofInput(op, 0, [t!, null]), ofInput(op, 1, [s!, null]), ofInput(op, 2, [null, d!]), ofWeight(op, 0, [d!, null])],
    explain: ({ index: [, t, s] }, [c, b, steps, rates]) => ({
      form: "products", bias: null,
      products: products(c!, b!).map((one, i) => {
        const factor = s! > t! ? 0 : steps!.term(s).value * Math.exp(rates!.term(i).value * between(steps!, s!, t!));
        return { ...one, factor, product: one.product * factor };
      }),
    }),
    length: (op, axis, from) => (axis ? from(0) : setting(op, "heads")),
  },
  /** d t s: the key of s and the rate of each step between, or at t itself the bonus, of each channel; 0 for a later s. */
  ageing_scores: {
    inputs: [1, 1],
    compute: ({ x: [keys], w }) => {
      const [n, channels] = keys!.shape as [number, number];
      return ofPairs(channels, n, (d, t, s) => keys!.data[s * channels + d]! + Math.abs(t - 1 - s) * w[+(s === t)]!.data[d]!);
    },
    needs: ({ op, index: [d, t, s] }) => [ofInput(op, 0, [s!, d!]), ofWeight(op, +(s === t), [d!])],
    explain: ({ index: [, t, s] }, [key, each]) => ({
      form: "sum", terms: s! > t! ? [] : [key!, ...Array<Given>(Math.abs(t! - 1 - s!)).fill(each!)].map((one) => one.term()),
    }),
    length: (op, axis, from) => (axis ? from(0) : setting(op, "heads")),
  },
  /** h t k -> t (h k) */
  merge: {
    inputs: [1, 1],
    compute: ({ x: [value] }) => {
      const [heads, n, width] = value!.shape as [number, number, number], out = floats([n, heads * width]);
      for (let h = 0; h < heads; h++) for (let t = 0; t < n; t++) out.data.set(value!.data.subarray((h * n + t) * width, (h * n + t + 1) * width), (t * heads + h) * width);
      return out;
    },
    needs: ({ op, index: [t, i] }) => [ofInput(op, 0, [Math.floor(i! / setting(op, "width")), t!, i! % setting(op, "width")])],
    explain: taken,
    length: (op, axis, from) => (axis ? from(0) * setting(op, "width") : from(1)),
  },
  /** T_ts = sum over u before t of L_tu T_us, but T_tt the rate of t. */
  correct: {
    inputs: [2, 2],
    compute: ({ x: [taken, rates] }: Call) => {
      const [heads, n] = taken!.shape as [number, number];
      return ofPairs(heads, n, (h, t, s, out) => {
        let total = t === s ? rates!.data[t * heads + h]! : 0;
        for (let u = s; u < t; u++) total += taken!.data[(h * n + t) * n + u]! * out(u, s);
        return total;
      });
    },
    needs: ({ op, index: [h, t, s] }) => [
      ofInput(op, 0, [h!, t!, null]), { kind: "value", name: op.out, index: [h!, null, s!] }, ofInput(op, 1, [t!, h!]),
    ],
    explain: ({ index: [, t, s] }, [taken, made, rate]) => ({
      form: "products",
      products: Array.from({ length: Math.max(t! - s!, 0) }, (_, i) => {
        const left = taken!.term(s! + i), right = made!.term(s! + i);
        return { left, right, product: left.value * right.value };
      }),
      bias: t === s ? rate!.term() : null,
    }),
  },
} satisfies Record<string, OpKind>;

/** The sum after s up to t. */
function between(given: Given, s: number, t: number): number {
  return sum(given.terms().slice(s + 1, t + 1).map((one) => one.value));
}

/** h t s, row by row, from the rows before; 0 for a later s. */
function ofPairs(heads: number, n: number, make: (h: number, t: number, s: number, out: (t: number, s: number) => number) => number): Floats {
  const made = floats([heads, n, n]);
  for (let h = 0; h < heads; h++) {
    const at = (t: number, s: number): number => made.data[(h * n + t) * n + s]!;
    for (let t = 0; t < n; t++) for (let s = 0; s <= t; s++) made.data[(h * n + t) * n + s] = make(h, t, s, at);
  }
  return made;
}
