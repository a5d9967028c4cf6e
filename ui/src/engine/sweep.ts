/** Many passes that differ from one by an edit, each computed from the changed value on and as far as the answer needs. */

import type { Index } from "../core/address";
import type { Tensor } from "../core/host";
import type { Edit, Op } from "../core/protocol";
import { floats, size, type Floats } from "../core/tensor";
import { byPath, edited } from "./edits";
import { forward, inputsOf, isStale, weightsOf, type Options, type Pass } from "./forward";
import { compute } from "./ops";
import { lettersOf } from "./taps";

/** A pass as far as the answer at a position needs it: a causal decoder reads nothing behind. Edits may say more. */
export function upTo(pass: Pass, position: number, options: Options): Pass {
  const isFree = pass.edits.every(({ at, do: what }) => at.startsWith("encoder.") || (what === "zero" && !/[ts]=/.test(at)));
  if (!pass.plan.config.decoder || !isFree || position === pass.numbers.get("decoder.ids")!.data.length - 1) return pass;
  const numbers = new Map([...pass.numbers].map(([name, value]): [string, Tensor] =>
    [name, name.startsWith("decoder.") ? { shape: [position + 1], data: value.data.slice(0, position + 1) } : value]));
  return forward(pass.plan, pass.weights, numbers, pass.edits, options);
}

export class Sweep {
  /** What follows the last attention reads each position alone: only one is computed. */
  readonly #tail = new Set<string>();
  readonly #cut = new Map<string, Floats>();

  /** `position` is that of the answer, or null where all are needed. */
  constructor(private readonly pass: Pass, private readonly position: number | null, private readonly options: Options) {
    const { ops } = pass.plan, tail = ops.slice(ops.map(({ out }) => out.endsWith(".z")).lastIndexOf(true) + 1).map(({ out }) => out);
    if (position !== null && ![...byPath(pass.edits).keys()].some((path) => tail.includes(path))) this.#tail = new Set(tail);
  }

  /** The value at a path with these edits beside those of the pass; of one position, where that is all that is needed. */
  result(path: string, edits: readonly Edit[]): Floats {
    const { plan, weights, values: before } = this.pass, own = byPath(edits), all = byPath([...this.pass.edits, ...edits]);
    const stale = new Set(own.keys()), values = new Map<string, Floats>();
    for (const op of plan.ops) {
      if (!isStale(op, stale)) continue;
      const isNew = (op.inputs ?? []).some((name) => values.has(name)), isTail = this.#tail.has(op.out);
      let value = isNew ? compute(op, this.#inputs(op, values, isTail), weightsOf(op, weights), plan.masks) : isTail ? this.#part(op.out) : before.get(op.out)!;
      for (const { edit, at } of (isNew ? all : own).get(op.out) ?? []) {
        const here = isTail ? { ...at, index: at.index.map(([axis, i]): Index => [axis, axis === "t" ? 0 : i]) } : at;
        value = edited(value, edit, here, this.options.other);
      }
      stale.add(op.out);
      values.set(op.out, value);
      if (op.out === path) return this.position === null || isTail ? value : rowOf(path, value, this.position);
    }
    return this.position === null ? before.get(path)! : this.#part(path);
  }

  #inputs(op: Op, values: ReadonlyMap<string, Floats>, isTail: boolean): Tensor[] {
    if (!isTail) return inputsOf(op, { get: (name) => values.get(name) ?? this.pass.values.get(name) }, this.pass.numbers);
    return (op.inputs ?? []).map((name) => {
      const made = values.get(name);
      return !made ? this.#part(name) : this.#tail.has(name) ? made : rowOf(name, made, this.position!);
    });
  }

  /** The position of a value that no edit changes. */
  #part(name: string): Floats {
    let found = this.#cut.get(name);
    if (!found) this.#cut.set(name, (found = rowOf(name, this.pass.values.get(name)!, this.position!)));
    return found;
  }
}

/** One position of a value. */
function rowOf(path: string, { shape, data }: Floats, position: number): Floats {
  const axis = lettersOf(path, shape.length)?.split(" ").indexOf("t") ?? -1;
  if (axis < 0) return { shape, data };
  const n = shape[axis]!, width = size(shape.slice(axis + 1)), count = data.length / (n * width), out = floats(shape.map((m, i) => (i === axis ? 1 : m)));
  for (let i = 0; i < count; i++) out.data.set(data.subarray((i * n + position) * width, (i * n + position + 1) * width), i * width);
  return out;
}
