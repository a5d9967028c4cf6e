/** From logits to the next token, as clearhead/generation/sampling.py has it. */

import { logSumExp } from "../../core/top";
import { argmax, order, softmax } from "../../core/vectors";

/** The settings that a text is written with: clearhead/recipe/generation.py says what each means. */
export interface Settings {
  max_new_tokens: number; min_new_tokens: number; beams: number; temperature: number; top_k: number | null; top_p: number | null;
  seed: number; length_penalty: number; early_stopping: boolean | "never"; repetition_penalty: number; no_repeat_ngram: number | null;
  end_ids: number[]; start_id: number | null; forced_first_id: number | null; forced_last_id: number | null;
  banned_ids: number[]; first_banned_ids: number[];
}

/** Scores after repetition control, minimum length, bans and forced tokens. `ids` are the prompt and the tokens written. */
export function controlled(scores: Float64Array, ids: readonly number[], nPrompt: number, limit: number, settings: Settings): Float64Array {
  const made = scores.slice(), written = ids.length - nPrompt, { repetition_penalty: penalty } = settings;
  if (penalty !== 1) for (const id of new Set(ids)) made[id] = made[id]! > 0 ? made[id]! / penalty : made[id]! * penalty;
  forbid(made, ids, written, settings);
  return forced(made, ids.length, nPrompt, limit, settings);
}

/** 0 for a token that must come next, and -Infinity for the others. */
export function forced(scores: Float64Array, n: number, nPrompt: number, limit: number, settings: Settings): Float64Array {
  const first = n === nPrompt && nPrompt === 1 ? settings.forced_first_id : null;
  const only = (n - nPrompt + 1 === limit ? settings.forced_last_id : null) ?? first;
  return only === null ? scores : scores.map((_, id) => (id === only ? 0 : -Infinity));
}

/** Repeated n-grams and ends that come too early are left where nothing else is. */
function forbid(scores: Float64Array, ids: readonly number[], written: number, settings: Settings): void {
  const isFirst = written === Number(settings.forced_first_id !== null);
  const banned = [...settings.banned_ids, ...(isFirst ? settings.first_banned_ids : [])];
  const unwanted = new Set([...(written < settings.min_new_tokens ? settings.end_ids : []), ...repeated(ids, settings.no_repeat_ngram)]);
  for (const id of banned) if (id < scores.length) scores[id] = -Infinity;
  const gone = new Set([...banned, ...unwanted].filter((id) => id < scores.length));
  if (gone.size < scores.length) for (const id of unwanted) if (id < scores.length) scores[id] = -Infinity;
}

/** The tokens that would complete an n-gram which is already there. */
function repeated(ids: readonly number[], n: number | null): number[] {
  if (n === null || ids.length < n) return [];
  const end = ids.slice(ids.length - n + 1), found: number[] = [];
  for (let i = 0; i + n <= ids.length; i++) {
    if (end.every((id, k) => ids[i + k] === id)) found.push(ids[i + n - 1]!);
  }
  return found;
}

export function logSoftmax(logits: ArrayLike<number>): Float64Array {
  const log = logSumExp(logits), made = new Float64Array(logits.length);
  for (let i = 0; i < made.length; i++) made[i] = logits[i]! - log;
  return made;
}

/** The next token: the likeliest, or the one at which the sum of the probabilities passes a random number. */
export function chosen(scores: Float64Array, settings: Settings, chance: () => number): number {
  if (settings.temperature === 0) return argmax(scores);
  const shares = logSoftmax(narrowed(scores.map((x) => x / settings.temperature), settings)).map(Math.exp);
  const aim = chance() * shares.reduce((sum, x) => sum + x, 0);
  let sum = 0, last = 0;
  for (let id = 0; id < shares.length; id++) {
    if (shares[id] === 0) continue;
    [sum, last] = [sum + shares[id]!, id];
    if (sum > aim) break;
  }
  return last;
}

/** -Infinity for the tokens that top-k and top-p leave out. */
export function narrowed(scores: Float64Array, { top_k: k, top_p: p }: Pick<Settings, "top_k" | "top_p">): Float64Array {
  let made = scores;
  if (k !== null && k < made.length) {
    const least = made.slice().sort().at(-k)!;
    made = made.map((x) => (x < least ? -Infinity : x));
  }
  if (p === null || p >= 1) return made;
  const shares = softmax(made), kept = new Float64Array(made.length).fill(-Infinity);
  let before = 0;
  for (const id of order(made)) {
    if (before >= p) break;
    kept[id] = made[id]!;
    before += shares[id]!;
  }
  return kept;
}
