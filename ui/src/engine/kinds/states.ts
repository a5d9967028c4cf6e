/** A state that forgets and is corrected: what is left of each position at a later one, and what that corrects. */

import { floats, type Floats } from "../../core/tensor";
import { sum } from "../forms";
import { ofInput, type Call, type OpKind } from "../kind";

export const STATES = {
  /** Scores times what is left of s at t: exp of the sum of the decays, t h, after s up to t; 0 for a later s. */
  decay: {
    inputs: [2, 2],
    compute: ({ x: [scores, decays] }) => {
      const { shape, data } = scores!, [heads, n] = shape as [number, number];
      const left = ofPairs(heads, n, (h, t, s, out) => (t > s ? out(t - 1, s) * Math.exp(decays!.data[t * heads + h]!) : 1));
      return floats(shape, left.data.map((share, i) => share * data[i]!));
    },
    needs: ({ op, index }) => [ofInput(op, 0, index), ofInput(op, 1, [null, index[0]!])],
    explain: ({ index: [, t, s] }, [score, decays]) => ({
      form: "function", name: "scale", of: score!.term(),
      settings: { factor: s! > t! ? 0 : Math.exp(sum(decays!.terms().slice(s! + 1, t! + 1).map((one) => one.value))) },
    }),
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

/** h t s, row by row, from the rows before; 0 for a later s. */
function ofPairs(heads: number, n: number, make: (h: number, t: number, s: number, out: (t: number, s: number) => number) => number): Floats {
  const made = floats([heads, n, n]);
  for (let h = 0; h < heads; h++) {
    const at = (t: number, s: number): number => made.data[(h * n + t) * n + s]!;
    for (let t = 0; t < n; t++) for (let s = 0; s <= t; s++) made.data[(h * n + t) * n + s] = make(h, t, s, at);
  }
  return made;
}
