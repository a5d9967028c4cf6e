/** How one number was made: a few forms cover every op. Each holds its numbers by name, in float64. */

import { sum } from "../core/vectors";
import { activation, limited, softCap, unmasked } from "./functions";

/** A number and its place: a cell of a value, of a parameter, or of what a stack reads (its ids or positions). */
export interface Term {
  kind: "value" | "weight" | "number";
  name: string;
  index: number[];
  value: number;
}

/** left * right */
export interface Product { left: Term; right: Term; product: number; /** Another, that has no address. */ factor?: number }

export type Form =
  /** The sum of products, and a bias. */
  | { form: "products"; products: Product[]; bias: Term | null }
  | { form: "sum"; terms: Term[] }
  | { form: "mean"; terms: Term[] }
  /** left * right */
  | { form: "product"; left: Term; right: Term }
  /** name(of), with its settings: `scale` by a factor, `soft_cap` by a cap, `clamp` by limits, an activation. */
  | { form: "function"; name: string; of: Term; settings: Record<string, number> }
  /** exp(cell - largest) as a share of the sum of those of its row; `at` is the cell's place in it. */
  | { form: "share"; cells: { of: Term; exp: number }[]; at: number; largest: number; total: number }
  /** A number as a part of the sum of its row, or of its length if `squared`; `at` is its place in it. */
  | { form: "part"; terms: Term[]; at: number; total: number; squared?: boolean }
  /** 1 for the `k` largest of what is compared, else 0; `rank` is how many are larger. */
  | { form: "chosen"; cells: { of: Term; ranked: number }[]; at: number; k: number; rank: number; chosen: boolean }
  /** 1 / sqrt(mean of squared deviations + eps); `mean` null: deviations from 0. */
  | {
      form: "spread";
      cells: { of: Term; deviation: number; square: number }[];
      mean: Term | null; variance: number; eps: number;
    }
  /** (of - mean) * rstd * gain + shift */
  | {
      form: "norm"; of: Term; mean: Term | null; rstd: Term; gain: Term; shift: Term | null;
      centred: number; scaled: number;
    }
  /** of * cos + sign * partner * sin; the angle is position * frequency; cos and sin hold the magnitude. */
  | {
      form: "rotation"; of: Term; partner: Term; sign: 1 | -1; position: Term;
      frequency: number; angle: number; magnitude: number; cos: number; sin: number;
    }
  /** sin or cos of position * frequency */
  | { form: "wave"; wave: "sin" | "cos"; position: Term; frequency: number; angle: number }
  /** Taken as it is; `by` the number that chose it, such as a token's id. */
  | { form: "taken"; of: Term; by: Term | null }
  /** Taken from a table by the bucket of key - query. */
  | { form: "bucket"; of: Term; query: Term; key: Term; distance: number; bucket: number }
  /** -slope * |key - query| */
  | { form: "slope"; slope: number; query: Term; key: Term; distance: number }
  /** `of` if the mask is open, else -infinity. */
  | { form: "mask"; of: Term; open: boolean; causal: boolean; window: number | null; query: number; key: number };

export type Explanation = Form & {
  op: string;
  /** The number explained. */
  out: string;
  index: number[];
  result: number;
};

/** The result of a form. */
export function resultOf(form: Form): number {
  switch (form.form) {
    case "products":
      return sum(form.products.map((one) => one.product)) + (form.bias?.value ?? 0);
    case "sum":
      return sum(form.terms.map((term) => term.value));
    case "mean":
      return sum(form.terms.map((term) => term.value)) / form.terms.length;
    case "product":
      return form.left.value * form.right.value;
    case "function":
      return (SETTLED[form.name] ?? activation(form.name))(form.of.value, form.settings);
    case "share":
      return form.cells[form.at]!.exp / form.total;
    case "part":
      return form.terms[form.at]!.value / form.total;
    case "chosen":
      return form.chosen ? 1 : 0;
    case "spread":
      return 1 / Math.sqrt(form.variance + form.eps);
    case "norm":
      return form.scaled * form.gain.value + (form.shift?.value ?? 0);
    case "rotation":
      return form.of.value * form.cos + form.sign * form.partner.value * form.sin;
    case "wave":
      return Math[form.wave](form.angle);
    case "taken":
    case "bucket":
      return form.of.value;
    case "slope":
      return -form.slope * Math.abs(form.distance);
    case "mask":
      return form.open ? form.of.value : -Infinity;
  }
}

/** Functions with settings. */
const SETTLED: Record<string, (x: number, settings: Record<string, number>) => number> = {
  scale: (x, by) => x * by.factor!,
  soft_cap: (x, by) => softCap(x, by.cap!),
  unmasked,
  clamp: (x, by) => limited(x, by.least ?? -Infinity, by.most!),
};

