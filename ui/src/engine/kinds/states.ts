/** A state that forgets and is corrected: what is left of each position at a later one, and what that corrects. */

import { floats, type Floats } from "../../core/tensor";
import { ofInput, type Call, type OpKind } from "../kind";

export const STATES = {
  /** t h -> h t s: the sum of the numbers after s up to t; 0 for a later s. */
  sums_between: {
    inputs: [1, 1],
    compute: ({ x: [value] }) => {
      const { shape: [n, heads], data } = value as { shape: [number, number]; data: Float32Array };
      return ofPairs(heads, n, (h, t, s, out) => (t > s ? out(t - 1, s) + data[t * heads + h]! : 0));
    },
    needs: ({ op, index: [h] }) => [ofInput(op, 0, [null, h!])],
    explain: ({ index: [, t, s] }, [decays]) => ({ form: "sum", terms: decays!.terms().slice(s! + 1, Math.max(t!, s!) + 1) }),
    length: (_, axis, from) => from(axis === 0 ? 1 : 0),
  },
  /** T_ts = sum over u before t of L_tu T_us, but T_tt the rate of t. */
  correct: {
    inputs: [2, 2],
    compute: ({ x: [taken, rates] }: Call) => {
      const [heads, n] = taken!.shape as [number, number];
      return ofPairs(heads, n, (h, t, s, out) => {
        let sum = t === s ? rates!.data[t * heads + h]! : 0;
        for (let u = s; u < t; u++) sum += taken!.data[(h * n + t) * n + u]! * out(u, s);
        return sum;
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
