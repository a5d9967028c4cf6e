/** Adam (Kingma and Ba 2014): each parameter moves by the mean of its gradients over their size. */

import type { Floats } from "../../core/tensor";

const FIRST = 0.9, SECOND = 0.999, EPS = 1e-8;

export class Adam {
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
