/** What the feed-forwards do for an answer: whether it needs them, and whether they carry what differs between two texts. */

import type { Edit, StackName } from "../../core/protocol";
import { argmax } from "../../core/vectors";
import { percent, placeName, sharesAt, t, wordOf, type Explorer } from "../../parts/kit";
import { Run } from "../../state/run";
import { answers, nameOf } from "../answers.svelte";
import { feedForwardOf } from "./feedforward";

export interface Part { stack: StackName; layer: number; at: string; name: string }
/** The likeliest answer as it is, and with each of some edits. */
export interface Shares { word: string; was: number; p: number[] }

/** At most so many are measured. */
const MOST = 12;

/** Every feed-forward, of few; else those at one address. */
export function partsOf({ plan }: Run, own = ""): Part[] {
  const all = (["encoder", "decoder"] as const).flatMap((stack) => Array.from({ length: plan.config[stack]?.n_layers ?? 0 }, (_, layer) =>
    ({ stack, layer, at: feedForwardOf(plan, `${stack}.blocks.${layer}`)?.out ?? "", name: placeName(plan, { stack, layer }) }))).filter(({ at }) => at);
  return all.length > MOST ? all.filter(({ at }) => at === own) : all;
}

/** The share of the likeliest answer of a run at a position with each of some edits. Null where it cannot be told. */
export async function sharesWith(app: Explorer, run: Run | null, position: number, each: Edit[][], signal: AbortSignal): Promise<Shares | null> {
  const shares = run && answers(app) !== "none" && await sharesAt(app, run, position);
  if (!shares) return null;
  const best = argmax(shares), { edits = [] } = run.request, written = run.writtenTokens, request = { ...run.request, ...(written && { target: run.reply.target, written }) };
  const of = (more: Edit[]) => Run.of(app.host, { ...request, edits: [...edits, ...more] }, run.plan, signal, true).then((other) => sharesAt(app, other, position));
  return Promise.all(each.map(of)).then((all) => ({ word: wordOf(nameOf(app, best)), was: shares[best]!, p: all.map((one) => one![best]!) }), () => null); // A file may not compute it.
}

/** What the answer becomes with the first of them. */
export const toldOf = (key: string, found: Shares | null): string => (found ? t(key, { word: found.word, was: percent(found.was), p: percent(found.p[0]!) }) : "");
