/** How one number was made, as the page shows it: a formula, a sentence, the terms by size, and the steps. */

import { order, sum } from "../core/vectors";
import type { Explanation, Form, Product, Term } from "../engine/forms";
import { activation, limited, unmasked } from "../engine/functions";

/** A sign, or a number with its name. */
export type Piece = string | Term;

/** A term of a sum: its amount is drawn as a bar. */
export interface Row {
  of: Term;
  pieces: Piece[];
  amount: number;
}

/** One line of the arithmetic; `name` is a key of the catalogue. */
export interface Line {
  name: string;
  pieces: Piece[];
  value: number;
}

export interface Making {
  /** The catalogue key of the sentence that says what is computed. */
  words: string;
  /** The right side of the formula, in signs. */
  signs: string;
  rows: Row[];
  /** The row that the number is about, where it is a share of them. */
  at: number | null;
  steps: Line[];
}

/** The terms and the steps of an explanation, in the order of the arithmetic. */
export function makingOf(explanation: Explanation): Making {
  const make = MAKE[explanation.form] as (of: Explanation) => Partial<Making>;
  return { words: `made.${explanation.form}`, signs: "", rows: [], at: null, steps: [], ...make(explanation) };
}

type Make = { [F in Form["form"]]: (of: Extract<Explanation, { form: F }>) => Partial<Making> };

const MAKE: Make = {
  products: ({ products, bias, out }) => ({
    words: products[0]?.right.kind === "weight" ? "made.learned" : "made.products",
    signs: `Σ ${of(products[0]?.left, out)} · ${of(products[0]?.right, out)}${plus(bias, out)}`,
    rows: [...products.map(productRow), ...(bias ? [plainRow(bias)] : [])],
  }),
  sum: ({ terms, out }) => ({ signs: summed(terms, out), rows: terms.map(plainRow) }),
  mean: ({ terms, out }) => {
    const total = sum(terms.map((term) => term.value)), n = String(terms.length);
    return {
      signs: `1/${n} · Σ ${of(terms[0], out)}`,
      rows: terms.map(plainRow),
      steps: [step("sum", ["Σ"], total), step("mean", ["Σ ÷ ", n], total / terms.length)],
    };
  },
  product: ({ left, right, out }) => ({
    signs: `${of(left, out)} · ${of(right, out)}`,
    steps: [step("product", [left, " × ", right], left.value * right.value)],
  }),
  function: ({ of: x, settings, name: how, out }) => {
    const short = of(x, out), { factor, cap, least = -Infinity, most } = settings;
    const done = (signs: string, pieces: Piece[], value: number): Partial<Making> =>
      ({ signs, steps: [step("applied", pieces, value)] });
    if (how === "unmasked") {
      const { unmasked: share = 1, tokens, others, id } = settings, signs = `${exact(share)} × ${tokens} ÷ ${others}`;
      return done(signs, [x, x.value === id ? ` = ${id} → 0` : ` ≠ ${id} → ${signs}`], unmasked(x.value, settings));
    }
    if (factor !== undefined) return done(`${short} · ${exact(factor)}`, [x, ` × ${exact(factor)}`], x.value * factor);
    if (most !== undefined) {
      const ends = Number.isFinite(least) ? `${exact(least)} … ${exact(most)}` : `≤ ${exact(most)}`;
      return done(`[${short}] ${ends}`, [x, ` → ${ends}`], limited(x.value, least, most));
    }
    if (cap === undefined) return done(`${how}(${short})`, [`${how}(`, x, ")"], activation(how)(x.value));
    const pieces = [`${cap} × tanh(`, x, ` ÷ ${cap})`];
    return done(`${cap} · tanh(${short} ÷ ${cap})`, pieces, cap * Math.tanh(x.value / cap));
  },
  share: ({ cells, at, largest, total, out }) => ({
    signs: `exp(${of(cells[0]?.of, out)}) ÷ Σ exp(${of(cells[0]?.of, out)})`,
    rows: cells.map(({ of: cell, exp }) => ({ of: cell, pieces: ["exp(", cell, " − max)"], amount: exp })),
    at,
    steps: [
      step("largest", ["max"], largest),
      step("exp", ["exp(", cells[at]!.of, " − max)"], cells[at]!.exp),
      step("total", ["Σ exp"], total),
      step("share", ["exp ÷ Σ exp"], cells[at]!.exp / total),
    ],
  }),
  part: ({ terms, at, total, squared, out }) => {
    const name = of(terms[0], out), sum = squared ? "√Σ x²" : "Σ";
    return {
      ...(squared && { words: "made.unit" }),
      signs: `${name} ÷ ${squared ? `√Σ ${name}²` : `Σ ${name}`}`,
      rows: squared ? terms.map((one) => ({ of: one, pieces: [one, "²"], amount: one.value ** 2 })) : terms.map(plainRow),
      at,
      steps: [step(squared ? "length" : "total", [sum], total), step("share", [terms[at]!, ` ÷ ${sum}`], terms[at]!.value / total)],
    };
  },
  chosen: ({ cells, at, k, rank, chosen, out }) => ({
    signs: `${of(cells[0]?.of, out)} ∈ ${k} max`,
    rows: cells.map(({ of: cell, ranked }) => ({ of: cell, pieces: [cell], amount: Number.isFinite(ranked) ? ranked : 0 })),
    at,
    steps: [step("rank", [cells[at]!.of], rank + 1), step(chosen ? "chosen" : "passed", [`${rank + 1} ≤ ${k}?`], Number(chosen))],
  }),
  spread: ({ cells, mean, variance, eps, out }) => {
    const centred = `${of(cells[0]?.of, out)}${mean ? ` − ${of(mean, out)}` : ""}`;
    return {
      words: mean ? "made.spread" : "made.root",
      signs: `1 ÷ √(1/${cells.length} · Σ (${centred})² + ε)`,
      rows: cells.map(({ of: cell, square }) => ({ of: cell, pieces: mean ? ["(", cell, " − ", mean, ")²"] : [cell, "²"], amount: square })),
      steps: [
        step(mean ? "variance" : "square", [`Σ ÷ ${cells.length}`], variance),
        step("deviation", [`√(… + ${eps})`], Math.sqrt(variance + eps)),
        step("inverse", ["1 ÷ √"], 1 / Math.sqrt(variance + eps)),
      ],
    };
  },
  norm: ({ of: x, mean, rstd, gain, shift, centred, scaled, out }) => ({
    words: mean ? "made.norm" : "made.norm_uncentred",
    signs: [
      mean ? `(${of(x, out)} − ${of(mean, out)})` : of(x, out), of(rstd, out), `${of(gain, out)}${plus(shift, out)}`,
    ].join(" · "),
    steps: [
      ...(mean ? [step("centred", [x, " − ", mean], centred)] : [step("value", [x], x.value)]),
      step("scaled", ["… × ", rstd], scaled),
      step("gain", ["… × ", gain], scaled * gain.value),
      ...(shift ? [step("shift", ["… + ", shift], scaled * gain.value + shift.value)] : []),
    ],
  }),
  rotation: ({ of: x, partner, sign, position, frequency, angle, cos, sin, magnitude, out }) => ({
    signs: `${scaled(magnitude)}(${of(x, out)} · cos θ ${sign < 0 ? "−" : "+"} ${of(partner, out)}′ · sin θ)`,
    rows: [
      { of: x, pieces: [x, ` × ${exact(cos)}`], amount: x.value * cos },
      { of: partner, pieces: [`${sign < 0 ? "−" : ""}`, partner, ` × ${exact(sin)}`], amount: sign * partner.value * sin },
    ],
    steps: [step("angle", ["θ = ", position, ` × ${exact(frequency)}`], angle)],
  }),
  wave: ({ wave, position, frequency, angle }) => ({
    signs: `${wave}(position · ω)`,
    steps: [
      step("angle", ["θ = ", position, ` × ${exact(frequency)}`], angle),
      step("wave", [`${wave} θ`], Math[wave](angle)),
    ],
  }),
  taken: ({ of: x, by, out }) => ({ signs: of(x, out), steps: [...(by ? [step("by", [by], by.value)] : []), step("taken", [x], x.value)] }),
  bucket: ({ of: x, query, key, distance, bucket, out }) => ({
    signs: `${of(x, out)}[bucket(key − query)]`,
    steps: [step("distance", [key, " − ", query], distance), step("bucket", ["bucket"], bucket), step("taken", [x], x.value)],
  }),
  slope: ({ slope, query, key, distance }) => ({
    signs: "−slope · |key − query|",
    steps: [
      step("distance", [key, " − ", query], distance),
      step("slope", [`−${exact(slope)} × |${distance}|`], -slope * Math.abs(distance)),
    ],
  }),
  mask: ({ of: x, open, out }) => ({ signs: of(x, out), steps: [step(open ? "open" : "closed", [x], open ? x.value : -Infinity)] }),
};

// --- terms -------------------------------------------------------------------------------------------------------------

function productRow({ left, right, product, factor }: Product): Row {
  return { of: left, pieces: [left, " × ", right, ...(factor === undefined ? [] : [` × ${exact(factor)}`])], amount: product };
}

function plainRow(term: Term): Row {
  return { of: term, pieces: [term], amount: term.value };
}

function step(name: string, pieces: Piece[], value: number): Line {
  return { name: `made.step.${name}`, pieces, value };
}

/** Terms of one value: their sum; of several: each by its name. */
function summed(terms: readonly Term[], name: string): string {
  const names = terms.map((term) => of(term, name));
  const distinct = [...new Set(names)];
  const several = (one: string): boolean => names.filter((other) => other === one).length > 1;
  return distinct.map((one) => (several(one) ? `Σ ${one}` : one)).join(" + ");
}

/** The `count` largest rows, largest first, always with the `at`-th, and the sum of the others. */
export function largestRows(rows: readonly Row[], count: number, at: number | null = null): { shown: Row[]; others: number; sum: number } {
  const kept = order(rows.map(({ amount }) => Math.abs(amount))).slice(0, rows.length <= count + 1 ? rows.length : count);
  if (at !== null && !kept.includes(at)) kept[kept.length - 1] = at;
  const chosen = new Set(kept);
  const others = rows.filter((_, i) => !chosen.has(i));
  return { shown: kept.map((i) => rows[i]!), others: others.length, sum: sum(others.map((row) => row.amount)) };
}

// --- names -------------------------------------------------------------------------------------------------------------

function plus(term: Term | null, from: string): string {
  return term ? ` + ${of(term, from)}` : "";
}

function scaled(magnitude: number): string {
  return magnitude === 1 ? "" : `${exact(magnitude)} · `;
}

function of(term: Term | undefined, from: string): string {
  return term ? shortName(term.name, from) : "";
}

/** A name without the leading parts that it shares with `from`. A parameter keeps at least two parts. */
export function shortName(name: string, from: string): string {
  const parts = name.split("."), others = from.split(".");
  let common = 0;
  while (common < Math.min(parts.length - 1, others.length - 1) && parts[common] === others[common]) common++;
  const isParameter = /^(weight|bias)$/.test(parts.at(-1)!);
  return parts.slice(isParameter ? Math.min(common, parts.length - 2) : common).join(".");
}

/** The last two parts of a name; three for a value of a block. */
export function briefName(name: string): string {
  const parts = name.split(".");
  return parts.slice(/^\d+$/.test(parts.at(-2) ?? "") ? -3 : -2).join(".");
}

/** A number in a formula, with five digits at most. */
function exact(x: number): string {
  return String(Number(x.toPrecision(5))).replace("-", "−");
}
