/** One head of one attention: the addresses of its values, its tokens, and the cells that its mask closes. */

import type { Mask, Plan, StackConfig, StackName, Token } from "../core/protocol";
import { sum } from "../core/vectors";
import { isOpen } from "../engine/functions";
import { textsOf } from "../draw/words";
import type { Explorer } from "./explorer.svelte";

export interface AttentionPlace {
  at: string;
  stack: StackConfig;
  q: string; k: string; v: string; z: string; product: string; scores: string; weights: string;
  queries: Token[];
  keys: Token[];
  /** Their texts, as they are shown. */
  queryNames: string[]; keyNames: string[];
  mask: Mask | null;
  closed: (query: number, key: number) => boolean;
}

/** The last place of a page: the same object while nothing in it changes, so that its views do not draw it again. */
const last = new WeakMap<Explorer, { key: string; plan: Plan; place: AttentionPlace }>();

export function attention(state: Explorer): AttentionPlace {
  const { page } = state;
  const run = state.shown;
  const at = state.at;
  const plan = run?.plan ?? state.about.plan;
  const queries = tokensOf(state, page.stack);
  const keys = tokensOf(state, page.part === "cross" ? "encoder" : page.stack);
  const key = JSON.stringify([at, page.head, queries, keys]);
  const known = last.get(state);
  if (known?.key === key && known.plan === plan) return known.place;

  const stack = plan.config[page.stack]!;
  // Heads of a group share their keys and values.
  const group = stack.n_heads / (stack.n_kv_heads ?? stack.n_heads);
  const own = `[h=${page.head}]`, shared = `[h=${Math.floor(page.head / group)}]`;
  const mask = plan.masks[run?.op(`${at}.masked`)?.how ?? ""] ?? null;
  const place: AttentionPlace = {
    at, stack, mask, queries, keys, queryNames: textsOf(queries), keyNames: textsOf(keys),
    q: `${at}.q${own}`, k: `${at}.k${shared}`, v: `${at}.v${shared}`, z: `${at}.z${own}`,
    product: `${at}.scores.product${own}`, scores: `${at}.scores${own}`, weights: `${at}.weights${own}`,
    closed: (query, key) => mask !== null && !isOpen(mask, query, key),
  };
  last.set(state, { key, plan, place });
  return place;
}

/** Whether the weights of a row are shares of one: an edit may have written others. */
export function areShares(row: ArrayLike<number>): boolean {
  const all = Array.from(row);
  return all.every((x) => x >= 0) && Math.abs(sum(all) - 1) <= 0.01;
}

/** The tokens of a stack; the patches of an image are named by row and column. */
export function tokensOf(state: Explorer, stack: StackName): Token[] {
  return state.shown?.reply.tokens[stack] ?? [];
}

export { goesOn, joined, textsOf, type Spoken } from "../draw/words";
