/** A value as a sum of what earlier parts of the network wrote, while every norm keeps the scale it had: the twin of
 *  clearhead/analysis/shares.py. Ops work on one row for each part, where else there is one for each position. */

import type { Op } from "../../core/protocol";
import { axisLength, floats, size, type Floats } from "../../core/tensor";
import { byPath } from "../../engine/edits";
import type { Pass } from "../../engine/forward";
import { compute } from "../../engine/ops";

const BENDS = "attribution: expected a linear head, got one with a layer, a pooler or a cap of its own";
const WRITER = /^\w+\.(embed\.(tokens|positions)|blocks\.\d+\.ffn\.out)$/;
const LINEAR = /^(rotate|rotate_grid|copy|add|join|scale|linear|gain|split|repeat|norm|pool)$/;

/** The summands of a value at one position. */
export interface Parts {
  /** An address for what a part of the network wrote, a parameter's name for a bias. */
  names: string[];
  /** … n d: one row for each name. */
  values: Floats;
}

export class Shares {
  readonly ops: ReadonlyMap<string, Op>;
  readonly byHand: ReadonlySet<string>;

  constructor(readonly pass: Pass) {
    this.ops = new Map(pass.plan.ops.map((op) => [op.out, op]));
    this.byHand = new Set(byPath(pass.edits).keys());
  }

  /** The summands of the vector at this path and position; of each head where the value has an axis of heads. */
  parts(at: string, position: number): Parts {
    const op = this.ops.get(at)!;
    if (this.#isGiven(op)) return this.#given(op, position);
    const [a, b] = added(op).map((name) => this.parts(name, position)) as [Parts, Parts?];
    if (!b) return this.#withBias({ ...a, values: this.#through(op, [a.values], position) }, op.weights?.slice(1));
    if (op.op === "add") return joined(a, b);
    return joined({ ...a, values: this.evaluated(op, a.values, zeros(a, b)) }, { ...b, values: this.evaluated(op, zeros(b, a), b.values) });
  }

  /** What rows that are added to the value `start` at one position add to the value `end` directly; null if an edit wrote
   *  a value on the way. */
  onward(start: string, x: Floats, position: number, end: string): Floats | null {
    const op = this.ops.get(end)!;
    if (end === start) return x;
    if (this.#isGiven(op)) return null;
    const own = added(op).flatMap((name) => this.onward(start, x, position, name) ?? []);
    return op.op === "add" || !own.length ? own[0] ?? null : this.#through(op, own, position);
  }

  /** … 1 d: the vector at a position. */
  at(path: string, position: number): Floats {
    return picked([[this.pass.values.get(path)!, position]]);
  }

  /** The result of an op for other inputs. */
  evaluated(op: Op, ...inputs: Floats[]): Floats {
    return compute(op, inputs, (op.weights ?? []).map((name) => this.pass.weights.get(name)!), this.pass.plan.masks);
  }

  /** The number that an op reads at a position. */
  number({ inputs }: Op, position: number): number {
    return this.pass.numbers.get(inputs!.at(-1)!)!.data[position]!;
  }

  /** The head's product, through whose rows a part adds to a logit. Throws a one-line Error for a head that is not linear. */
  head(): Op {
    const op = this.ops.get("head.logits");
    if (op?.op !== "linear") throw new Error(BENDS);
    return op;
  }

  /** Whether the sum ends here, at a value that is a part by itself. */
  #isGiven({ op, out, inputs }: Op): boolean {
    if (this.byHand.has(out) || (op === "norm" && inputs!.slice(1, -1).some((name) => this.byHand.has(name)))) return true;
    if (LINEAR.test(op)) return WRITER.test(out);
    if (out.startsWith("head.")) throw new Error(BENDS);
    return true;
  }

  #given(op: Op, position: number): Parts {
    if (op.op !== "sum_heads" || this.byHand.has(op.out) || WRITER.test(op.out)) return { names: [op.out], values: this.at(op.out, position) };
    const [heads] = op.inputs as [string], { shape: [n, , d], data } = this.at(heads, position);
    return this.#withBias({ names: Array.from({ length: n! }, (_, h) => `${heads}[h=${h}]`), values: floats([n!, d!], data) }, op.weights);
  }

  #withBias(made: Parts, biases: readonly string[] = []): Parts {
    return biases.reduce((sum, name) => {
      const { data } = this.pass.weights.get(name)!;
      return joined(sum, { names: [name], values: floats([1, data.length], Float32Array.from(data)) });
    }, made);
  }

  /** What the op makes of each row at this position, without its bias. */
  #through(op: Op, own: Floats[], position: number): Floats {
    const [x] = own as [Floats], n = axisLength(x, -2), alone = { ...op, weights: op.weights?.slice(0, 1) ?? [] };
    const repeated = (one: Floats): Floats => picked(Array.from({ length: n }, () => [one, 0]));
    if (op.op === "norm") {
      const mean = op.inputs!.length > 2 ? [compute({ ...op, op: "mean" }, [x], [], {})] : [];
      return this.evaluated(alone, x, ...mean, repeated(this.at(op.inputs!.at(-1)!, position)));
    }
    if (op.op === "pool") {
      const chosen = floats([axisLength(this.pass.values.get(op.inputs![0]!)!, 0), 1]);
      chosen.data[position] = 1;
      const [factor] = this.evaluated(alone, chosen).data;
      return floats(x.shape, x.data.map((value) => value * factor!));
    }
    if (op.op.startsWith("rotate")) own = [x, floats([n], new Float32Array(n).fill(this.number(op, position)))];
    return this.evaluated(alone, ...own);
  }
}

/** The rows along the last axis but one; those of a matrix for every head. */
function picked(from: readonly (readonly [Floats, number])[]): Floats {
  const [[{ shape }]] = from as [[Floats, number]], d = shape.at(-1)!, lead = shape.slice(0, -2), n = from.length;
  const out = floats([...lead, n, d]);
  for (let h = 0; h < size(lead); h++) {
    from.forEach(([value, i], j) => {
      const start = ((h * axisLength(value, -2) + i) * d) % value.data.length;
      out.data.set(value.data.subarray(start, start + d), (h * n + j) * d);
    });
  }
  return out;
}

/** The summands of both. */
function joined(a: Parts, b: Parts): Parts {
  const rows = ({ names, values }: Parts): [Floats, number][] => names.map((_, i) => [values, i]);
  return { names: [...a.names, ...b.names], values: picked([...rows(a), ...rows(b)]) };
}

/** As many rows as there are of the one, as wide as those of the other. */
function zeros({ values: { shape } }: Parts, { values }: Parts): Floats {
  return floats([...shape.slice(0, -1), axisLength(values, -1)]);
}

/** What an op adds up, or the one value that it is linear in. */
function added({ op, inputs }: Op): readonly string[] {
  return op === "add" || op === "join" ? inputs! : inputs!.slice(0, 1);
}
