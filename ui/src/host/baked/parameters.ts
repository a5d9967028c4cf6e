/** The parameters of a model that a file holds, some of them rounded to 8 or 4 bits. */

import type { Tensor } from "../../core/host";
import { Memory } from "../../engine/rounded/memory";
import { Rounded } from "../../engine/rounded/rounded";
import type { Parts } from "./parts";

interface Held {
  /** Names of the same tensor. */
  same: Record<string, string>;
  /** Of each rounded matrix, and the parts that they are in. */
  rounded?: Record<string, { bits: 8 | 4; width: number }>;
  parts?: string[];
}

export async function parameters(parts: Parts, name: string): Promise<Map<string, Tensor>> {
  const { json: { same, rounded = {}, parts: more = [] }, tensors } = await parts.read<Held>(name);
  const found = new Map(tensors), memory = more.length ? memoryOrNone() : null;
  for (const part of more) {
    const { tensors: pairs } = await parts.take(part);
    for (const [at, { shape, data }] of pairs) {
      const fact = rounded[at], scales = pairs.get(`${at}.scale`)?.data;
      if (!fact || !(data instanceof Uint8Array) || !(scales instanceof Float32Array)) continue;
      found.set(at, Rounded.of([shape[0]!, fact.width], fact.bits, data, scales, memory));
    }
  }
  for (const [also, own] of Object.entries(same)) found.set(also, found.get(own)!);
  return found;
}

/** None where the browser or a policy has no WebAssembly: products are slower then. */
function memoryOrNone(): Memory | null {
  try {
    return new Memory();
  } catch {
    return null;
  }
}
