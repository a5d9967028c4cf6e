/** How one number was made, from the numbers that `needs` lists: for a page to show and a reader to check. */

import type { Op } from "../core/protocol";
import { resultOf, sum, type Explanation, type Form, type Product, type Term } from "./forms";
import { isOpen, maskOf, setting, turn, wave } from "./functions";
import { bucketOf, inputNumber, needs, pairOf, type Context, type Need } from "./needs";
import { kindOf, type Kind } from "./ops";

/** The numbers of a need, each with its place. */
class Part {
  constructor(
    private readonly need: Need,
    private readonly numbers: ArrayLike<number>,
  ) {}

  get length(): number {
    return this.numbers.length;
  }

  term(i = 0): Term {
    const { kind, name, index } = this.need, value = this.numbers[i];
    if (value === undefined) throw new Error(`${name}: expected more than ${this.length} numbers`);
    return { kind, name, index: index.map((at) => at ?? i), value };
  }

  terms(): Term[] {
    return Array.from(this.numbers, (_, i) => this.term(i));
  }
}

/** `given[i]` holds the numbers of `needs(op, index, context)[i]`. */
export function explain(op: Op, index: number[], given: readonly ArrayLike<number>[], context: Context): Explanation {
  const parts = needs(op, index, context).map((need, i) => new Part(need, given[i] ?? []));
  const kind = kindOf(op), form = FORMS[kind](op, index, parts, context);
  return { ...form, op: kind, out: op.out, index, result: resultOf(form) };
}

// --- by op -----------------------------------------------------------------------------------------------------------

type Explain = (op: Op, index: readonly number[], parts: Part[], context: Context) => Form;

const taken: Explain = (_, __, [of]) => ({ form: "taken", of: of!.term(), by: null });
const settled: Explain = (op, _, [of]) => ({ form: "function", name: op.op, of: of!.term(), settings: op.by ?? {} });
const multiplied: Explain = (_, __, [a, b]) => ({ form: "products", products: products(a!, b!), bias: null });

const FORMS: Record<Kind, Explain> = {
  lookup: (op, [t, d], [row], context) => ({ form: "taken", of: row!.term(d), by: readAt(op, t!, context) }),
  unfold: taken,
  prepend: (_, [t, d], [of]) => ({ form: "taken", of: of!.term(t === 0 ? d : 0), by: null }),
  sinusoid: (op, [t, i], _, context) => {
    const position = readAt(op, t!, context), { kind, frequency } = wave(op, i!);
    return { form: "wave", wave: kind, position, frequency, angle: position.value * frequency };
  },
  copy: taken,
  add: (_, __, parts) => ({ form: "sum", terms: parts.map((part) => part.term()) }),
  scale: settled,
  soft_cap: settled,
  multiply: (_, __, [a, b]) => ({ form: "product", left: a!.term(), right: b!.term() }),
  activation: (op, _, [of]) => ({ form: "function", name: op.how ?? "", of: of!.term(), settings: {} }),
  linear: (_, index, [x, w, b]) => {
    return { form: "products", products: products(x!, w!), bias: b?.term(index.at(-1)) ?? null };
  },
  split: taken,
  repeat: taken,
  mean: (_, __, [row]) => ({ form: "mean", terms: row!.terms() }),
  rstd: (op, _, [row, mean]) => {
    const cells = row!.terms().map((of) => {
      const deviation = of.value - (mean?.term().value ?? 0);
      return { of, deviation, square: deviation * deviation };
    });
    const variance = sum(cells.map((cell) => cell.square)) / cells.length;
    return { form: "spread", cells, mean: mean?.term() ?? null, variance, eps: setting(op, "eps") };
  },
  norm: (op, index, parts) => {
    const [of, rstd, gain, shift] = op.inputs?.length === 3 ? parts.filter((_, i) => i !== 1) : parts;
    const mean = op.inputs?.length === 3 ? parts[1]!.term() : null, last = index.at(-1);
    const centred = of!.term().value - (mean?.value ?? 0);
    return {
      form: "norm", of: of!.term(), mean, rstd: rstd!.term(), gain: gain!.term(last), shift: shift?.term(last) ?? null,
      centred, scaled: centred * rstd!.term().value,
    };
  },
  rotate: (op, index, [first, second], context) => {
    if (!second) return { form: "taken", of: first!.term(), by: null };
    const [pair] = pairOf(op, index), isFirst = index.at(-1) === pair;
    const position = readAt(op, index.at(-2)!, context);
    const angle = turn(op, position.value, pair!), magnitude = setting(op, "magnitude");
    const [of, partner] = isFirst ? [first!.term(), second.term()] : [second.term(), first!.term()];
    return {
      form: "rotation", of, partner, sign: isFirst ? -1 : 1, position, frequency: op.numbers![pair!]!, angle, magnitude,
      cos: Math.cos(angle) * magnitude, sin: Math.sin(angle) * magnitude,
    };
  },
  relative_bias: (op, [head, t, s], [row], context) => {
    const { query, key, distance } = between(op, t!, s!, context);
    return { form: "bucket", of: row!.term(head), query, key, distance, bucket: bucketOf(op, t!, s!, context) };
  },
  alibi: (op, [head, t, s], _, context) => {
    return { form: "slope", slope: op.numbers![head!]!, ...between(op, t!, s!, context) };
  },
  matmul_nt: multiplied,
  matmul: multiplied,
  mask: (op, index, [of], context) => {
    const { causal, window } = maskOf(op, context.plan.masks), query = index.at(-2)!, key = index.at(-1)!;
    return { form: "mask", of: of!.term(), open: isOpen({ causal, window }, query, key), causal, window, query, key };
  },
  softmax: (_, index, [row]) => {
    const terms = row!.terms(), largest = Math.max(...terms.map((term) => term.value));
    const cells = terms.map((of) => ({ of, exp: Math.exp(of.value - largest) }));
    return { form: "share", cells, at: index.at(-1)!, largest, total: sum(cells.map((cell) => cell.exp)) };
  },
  project: (_, [h], [z, w]) => ({ form: "products", products: products(z!, w!, h! * z!.length), bias: null }),
  sum_heads: (_, [, d], [heads, b]) => ({ form: "sum", terms: [...heads!.terms(), ...(b ? [b.term(d)] : [])] }),
  pool: (op, index, parts, context) => {
    return op.how === "mean" ? { form: "mean", terms: parts[0]!.terms() } : taken(op, index, parts, context);
  },
};

// ---------------------------------------------------------------------------------------------------------------------

/** left . right, from a place in the right on. */
function products(left: Part, right: Part, from = 0): Product[] {
  return left.terms().map((term, i) => {
    const other = right.term(from + i);
    return { left: term, right: other, product: term.value * other.value };
  });
}

/** A whole number that a stack reads at a position. */
function readAt(op: Op, t: number, context: Context): Term {
  return { kind: "number", name: op.inputs?.at(-1) ?? "", index: [t], value: inputNumber(op, t, context) };
}

function between(op: Op, t: number, s: number, context: Context): { query: Term; key: Term; distance: number } {
  const query = readAt(op, t, context), key = readAt(op, s, context);
  return { query, key, distance: key.value - query.value };
}
