/** Fetches what explains one number of a run, and finds where the page shows a value. */

import { formatAddress, parseAddress, type Address } from "../core/address";
import type { StackName } from "../core/protocol";
import { overwrites } from "../engine/edits";
import { explained, sources } from "../engine/explain";
import type { Explanation } from "../engine/forms";
import type { Page } from "../state/page";
import { PLACES } from "../state/places";
import { tokensOf, tokenText, type Explorer, type Run } from "./kit";

export interface Made {
  explanation: Explanation;
  /** What the host recorded; null for a step that it does not store. */
  recorded: number | null;
  /** Whether an edit wrote what was recorded: the arithmetic gives what it replaced. */
  overwritten: boolean;
}

/** Whether an edit of the run wrote the number at an address, which has an index on every axis. */
export function isOverwritten({ request, reply }: Run, at: string): boolean {
  const address = parseAddress(at);
  return overwrites(request.edits, address, reply.facts[address.path]?.shape ?? []);
}

/** How the number at an address was made. Only the numbers that it is made of are fetched. */
export async function madeOf(run: Run, address: Address): Promise<Made> {
  const at = formatAddress(address), { plan, numbers, reply: { facts } } = run, stored = { plan, numbers, facts };
  const { values, weights } = sources(at, stored);
  const [found, rows, own] = await Promise.all([
    Promise.all(values.map((one) => run.value(one))),
    weights.length ? run.weights(weights) : null,
    address.path in facts ? run.value(at) : null,
  ]);
  const fetched = new Map([...(rows ?? []), ...values.map((one, i) => [one, found[i]!] as const)]);
  const value = own?.data[0];
  return {
    explanation: explained(at, stored, fetched),
    recorded: value === undefined ? null : Number.isNaN(value) ? -Infinity : value,
    overwritten: isOverwritten(run, at),
  };
}

/** The token at a position of a value, quoted; nothing on an axis without tokens. */
export function tokenAt(app: Explorer, path: string, axis: string, i: number): string {
  const isSource = path.startsWith("encoder.") || (axis === "s" && path.includes(".cross."));
  const token = /^[ts]$/.test(axis) ? tokensOf(app, isSource ? "encoder" : "decoder")[i] : undefined;
  return token ? ` “${tokenText(token.text)}”` : "";
}

/** The rounding error of a step: of float32, or of float16 or bfloat16 if the last bits of the number are zero. */
export function roundingOf(recorded: number): number {
  const [bits = 0] = new Uint32Array(Float32Array.of(recorded).buffer);
  if (recorded === 0 || (bits & 0x1fff) !== 0) return 1e-5;
  return (bits & 0xffff) === 0 ? 2 ** -6 : 2 ** -9;
}

/** Whether two ways of adding the same terms agree; `largest` is the largest absolute value among the terms. */
export function isClose(result: number, recorded: number, largest = 0): boolean {
  if (!Number.isFinite(recorded)) return result === recorded;
  return Math.abs(result - recorded) <= roundingOf(recorded) * Math.max(1, Math.abs(recorded), largest);
}

/** Where in the page a value is seen, and the selection that shows it; null if it is seen nowhere. */
export function seenAt(path: string, index: Readonly<Record<string, number>>): Partial<Page> | null {
  const block = /^(encoder|decoder)\.blocks\.(\d+)\.(attn|cross|ffn|resid)?/.exec(path);
  const view = PLACES.find(({ values }) => values?.test(path))?.name;
  if (!view) return null;
  const at: Partial<Page> = { view };
  if (block) Object.assign(at, { stack: block[1] as StackName, layer: Number(block[2]) });
  if (block?.[3] === "attn" || block?.[3] === "cross") at.part = block[3];
  if (index.h !== undefined) at.head = index.h;
  if (index.t !== undefined) Object.assign(at, path === "head.logits" ? { position: index.t } : { query: index.t });
  if (index.s !== undefined) at.key = index.s;
  const component = index.k ?? index.d ?? index.f;
  if (component !== undefined) at.dim = component;
  return at;
}
