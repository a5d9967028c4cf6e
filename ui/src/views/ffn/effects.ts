/** What the feed-forwards do for an answer: whether it needs them, and whether they carry what differs between two texts. */

import type { Edit, StackName } from "../../core/protocol";
import { argmax } from "../../core/vectors";
import { explorer, load, percent, placeName, sharesAt, t, wordOf, type Explorer } from "../../parts/kit";
import { Run } from "../../state/run";
import { answers, chosenPosition, nameOf } from "../answers.svelte";
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

/** The share of the likeliest answer that is shown with each of some edits. Null where it cannot be told. */
export async function sharesWith(app: Explorer, each: Edit[][], signal: AbortSignal): Promise<Shares | null> {
  const run = app.shown, position = chosenPosition(app);
  const shares = run && answers(app) !== "none" && await sharesAt(app, run, position);
  if (!shares) return null;
  const best = argmax(shares), { edits = [] } = run.request, written = run.writtenTokens, request = { ...run.request, ...(written && { target: run.reply.target, written }) };
  const of = (more: Edit[]) => Run.of(app.host, { ...request, edits: [...edits, ...more] }, run.plan, signal, true).then((other) => sharesAt(app, other, position));
  return Promise.all(each.map(of)).then((all) => ({ word: wordOf(nameOf(app, best)), was: shares[best]!, p: all.map((one) => one![best]!) }), () => null); // A file may not compute it.
}

/** Says in a component what the answer becomes with some edits, which leave it `p`. */
export function whatIf(what: string, edits: () => Edit[] | null): { readonly said: string; readonly p: number | undefined } {
  const app = explorer(), found = load((signal) => { const own = edits(); return own?.length ? sharesWith(app, [own], signal) : null; });
  return { get p() { return found.value?.p[0]; }, get said() {
    if (!found.value) return "";
    const { word, ...all } = found.value, [was, p] = [all.was, all.p[0]!].map(percent);
    return t(`what.${p === was ? "stays" : "goes"}.${what}`, { word, was, p });
  } };
}
