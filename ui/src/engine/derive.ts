/** A value that no host stores, from those that one does, by the one op that makes it. */

import { formatAddress, indexed, type Address } from "../core/address";
import type { Tensor } from "../core/host";
import type { Op } from "../core/protocol";
import { floats, toFloats } from "../core/tensor";
import type { Context } from "./kind";
import { compute, needs } from "./ops";
import { lettersOf } from "./taps";

/** Where the op's inputs come from: values at addresses, and parameters. */
export interface Source extends Context {
  value(at: string): Promise<Tensor>;
  weights(names: string[]): Promise<ReadonlyMap<string, Tensor>>;
}

/** If an op makes each head of its inputs' heads alone, only the head of the address is fetched and computed. */
export async function derive(op: Op, { path, index }: Address, source: Source): Promise<Tensor> {
  const heads = headsRead(op, index.find(([axis]) => axis === "h")?.[1], source);
  const inputs = (op.inputs ?? []).map(async (input, i) => {
    const here = input.endsWith(".pixels") ? undefined : source.numbers.get(input);
    if (here || !heads) return here ?? source.value(input);
    const { shape, data } = toFloats(await source.value(`${input}[h=${heads[i]}]`));
    return floats([1, ...shape], data);
  });
  const names = op.weights ?? [], asked = names.length ? source.weights(names) : null;
  const [values, weights] = await Promise.all([Promise.all(inputs), asked]);
  const made = compute(op, values, names.map((name) => weights!.get(name)!), source.plan.masks);
  if (index.length === 0) return made;
  const axes = lettersOf(path, made.shape.length);
  if (!axes) throw new Error(`${formatAddress({ path, index })}: no such part`);
  return indexed(made, axes, heads ? index.map(([axis, i]) => [axis, axis === "h" ? 0 : i]) : index);
}

/** Of each input, the head that a head of the output is made of; null where it is made of more, or of parameters. */
function headsRead(op: Op, head: number | undefined, context: Context): number[] | null {
  if (head === undefined || op.weights?.length) return null;
  const found = needs({ op, index: [head, 0, 0], context });
  return found.length && found.every(({ index }) => index.length === 3) ? found.map(({ index }) => index[0]!) : null;
}
