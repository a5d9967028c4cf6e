/** The head's logits at the chosen position, and the names of what it chooses from. */

import type { Token } from "../core/protocol";
import { answerAt, answerOf, type Explorer, type Run } from "../parts/kit";

export { logitsOf } from "../parts/kit";

/** Whether the head gives one answer for the whole sequence, one for each position, or none that are shares. */
export function answers(app: Explorer): "each" | "one" | "none" {
  const { kind } = app.about.plan.config.head;
  return kind === "classification" ? "one" : kind === "language" || kind === "tagging" ? "each" : "none";
}

export function chosenPosition(app: Explorer): number {
  return answerAt(app).position;
}

/** The name of a token or a label; `#17` where the host has not said it. */
export function nameOf(app: Explorer, id: number, more: ReadonlyMap<number, string> = new Map()): string {
  return app.about.labels?.[id] ?? app.a?.reply.words[id] ?? app.b?.reply.words[id] ?? more.get(id) ?? `#${id}`;
}

/** Which token each position answers for: of a decoder the one that follows, of an encoder the one there. */
export function askedAt(app: Explorer, run: Run): { position: number; token: Token }[] {
  if (app.about.plan.config.head.kind !== "language") return [];
  const shift = app.about.plan.config.decoder ? 1 : 0;
  return run.tokens.slice(shift).map((token, position) => ({ position, token }));
}

export interface Answered { text: string; id: number; p: number }

/** The text and the examples with the label that each gets, the surest first. */
export async function answered(app: Explorer, { request }: Run): Promise<Answered[]> {
  const found: Answered[] = [];
  for (const text of new Set([request.text, ...app.about.examples.map((one) => one.text)])) {
    const { id, p } = answerOf(await app.runOf({ ...request, text, edits: [] }), 0, null)!.top[0]!;
    found.push({ text, id, p });
  }
  return found.sort((one, other) => other.p - one.p);
}

/** By label, of the other examples that get it the one that gets it most surely. */
export async function typicalOf(app: Explorer, run: Run): Promise<Answered[]> {
  const found: Answered[] = [];
  for (const one of await answered(app, run)) if (one.text !== run.request.text) found[one.id] ??= one;
  return found;
}
