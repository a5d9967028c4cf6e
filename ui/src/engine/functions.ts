/** The functions of one number that ops are made of: for the engine, and for the explanation of a number. */

import type { Mask, Op } from "../core/protocol";

/** 2 / sqrt(pi) * sum of exp(-x^2) 2^n x^(2n+1) / (2n+1)!!, whose terms are all of one sign. */
function erf(x: number): number {
  if (Math.abs(x) > 6) return Math.sign(x);
  let term = x, sum = x;
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) sum += term *= (2 * x * x) / (2 * n + 1);
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}

const ACTIVATIONS: Record<string, (x: number) => number> = {
  relu: (x) => Math.max(x, 0),
  gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  /** 0.5 x (1 + tanh(u)), which is x sigmoid(2u) and quicker. */
  gelu_tanh: (x) => x / (1 + Math.exp(-2 * Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x))),
  quick_gelu: (x) => x / (1 + Math.exp(-1.702 * x)),
  silu: (x) => x / (1 + Math.exp(-x)),
  fall: (x) => Math.expm1(Math.min(x, 0)) - Math.min(x, 0),
  tanh: Math.tanh,
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
  softplus: (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x))),
  exp: Math.exp,
};

/** The function of an activation by its name. */
export function activation(name: string): (x: number) => number {
  const found = Object.hasOwn(ACTIVATIONS, name) ? ACTIVATIONS[name] : undefined;
  if (!found) throw new Error(`no activation is called "${name}"`);
  return found;
}

/** A setting of an op, from its `by`. */
export function setting(op: Op, name: string, otherwise?: number): number {
  const found = op.by?.[name] ?? otherwise;
  if (found === undefined) throw new Error(`${op.out}: ${op.op} needs a setting "${name}"`);
  return found;
}

/** The share of unmasked tokens in training over that of the text; 0 for the mask token. */
export function unmasked(id: number, by: Record<string, number>): number {
  return id === by.id ? 0 : (by.unmasked! * by.tokens!) / by.others!;
}

/** x, limited to -cap .. cap. */
export function softCap(x: number, cap: number): number {
  return cap * Math.tanh(x / cap);
}

/** x, but at least `least` and at most `most`. */
export function limited(x: number, least: number, most: number): number {
  return Math.min(Math.max(x, least), most);
}

/** Whether a query may attend to a key. */
export function isOpen(mask: Mask, query: number, key: number): boolean {
  if (mask.causal && key > query) return false;
  return mask.window == null || Math.abs(key - query) < mask.window;
}

export function maskOf(op: Op, masks: Readonly<Record<string, Mask>>): Mask {
  const found = masks[op.how ?? ""];
  if (!found) throw new Error(`${op.out}: no mask is called "${op.how}"`);
  return found;
}
