/** What the model says at one position: probabilities over the whole vocabulary, or over all labels. */

import type { Tensor } from "../core/host";
import { softmax } from "../core/vectors";
import type { Explorer } from "./explorer.svelte";
import type { Run } from "./run";

export interface Choice { id: number; text: string; p: number }
export interface Answer { top: Choice[] }

/** The probability of one answer of many is never 1, to which numbers of 32 bits round it. */
export const chance = (p: number): number => Math.min(p, 1 - 1e-9);

/** The answers at the chosen position, or at the one where the reader looks first. */
export function answerAt(state: Explorer): { position: number; a: Answer | null; b: Answer | null } {
  const { a, b } = state;
  if (!a) return { position: 0, a: null, b: null };
  const position = state.page.position ?? firstAsked(state, a, b);
  const of = (run: Run | null): Answer | null => run && answerOf(run, position, state.about.labels, state.page.temperature);
  return { position, a: of(a), b: of(b) };
}

/** A run's answers at a position, from the largest logits and the log-sum-exp of all: exact at temperature 1 only. */
export function answerOf(run: Run, position: number, labels: string[] | null, temperature = 1): Answer | null {
  const ids = run.tensors.get("output.ids"), values = run.tensors.get("output.values"), lse = run.tensors.get("output.lse");
  if (!ids || !values || !lse) return ofLabels(run.tensors.get("output.logits"), position, temperature, labels);
  const k = ids.shape[1] ?? 0, row = Math.min(position, (ids.shape[0] ?? 1) - 1);
  const top = Array.from({ length: k }, (_, i) => {
    const id = ids.data[row * k + i] ?? 0;
    return { id, text: run.reply.words[id] ?? `#${id}`, p: chance(Math.exp((values.data[row * k + i] ?? 0) - (lse.data[row] ?? 0))) };
  });
  return { top };
}

function ofLabels(logits: Tensor | undefined, position: number, temperature: number, labels: string[] | null): Answer | null {
  if (!logits) return null;
  const n = logits.shape.at(-1) ?? 0;
  const start = logits.shape.length > 1 ? Math.min(position, (logits.shape[0] ?? 1) - 1) * n : 0;
  const shares = softmax(logits.data.slice(start, start + n), temperature);
  const top = Array.from(shares, (p, id) => ({ id, text: labels?.[id] ?? `LABEL_${id}`, p }));
  return { top: top.sort((one, two) => two.p - one.p).slice(0, 20) };
}

/** sum p log(p / q), in nats. */
export function divergence(p: Float64Array, q: Float64Array): number {
  return p.reduce((total, x, i) => (x > 0 ? total + x * Math.log(x / Math.max(q[i] ?? 0, 1e-300)) : total), 0);
}

/** A run's logits at a position, of a classifier its only ones; null where it has none there. */
export function logitsOf(state: Explorer, run: Run | null, position: number): Promise<Tensor> | null {
  const pools = state.about.plan.config.head.kind === "classification", length = run?.reply.facts["head.logits"]?.shape[0];
  if (!run || length === undefined || (!pools && position >= length)) return null;
  return run.value(pools ? "head.logits" : `head.logits[t=${position}]`);
}

/** Their softmax at the page's temperature. */
export function sharesAt(state: Explorer, run: Run | null, position: number): Promise<Float64Array> | null {
  const { temperature } = state.page;
  return logitsOf(state, run, position)?.then(({ data }) => softmax(data, temperature)) ?? null;
}

/** Comparing two texts: the first position whose tokens differ. Else the one that is decided; a decoder's last; an encoder's
 *  first mask, or 0. */
export function firstAsked(state: Explorer, a: Run, b: Run | null): number {
  const differs = b && state.page.other ? a.tokens.findIndex((token, i) => token.id !== b.tokens[i]?.id) : -1;
  if (differs >= 0) return differs;
  if (state.decided?.run === a) return state.decided.position;
  if (state.about.plan.config.decoder) return Math.max(0, a.tokens.length - 1);
  return Math.max(0, a.tokens.findIndex((token) => token.text === state.about.mask));
}
