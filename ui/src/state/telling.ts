/** The head and the pair of tokens that a reader looks at first. */

import { parseAddress } from "../core/address";
import type { Reply } from "../core/host";
import { best } from "../core/vectors";
import type { OverviewReply, StackName, Token } from "../core/protocol";
import type { Page, Part } from "./page";
import type { Run } from "./run";

export interface Place { stack: StackName; layer: number; part: Part; head: number }
/** One attention weight: token `to` reads token `from`. */
export interface Curve extends Place { z: string; to: number; from: number; weight: number; moved: number; p: number }

export function placeOf(at: string): Place & { index: Record<string, number>; z: string } {
  const { path, index } = parseAddress(at), [, stack, layer, part] = /^(encoder|decoder)\.blocks\.(\d+)\.(attn|cross)/.exec(path)!;
  const found = Object.fromEntries(index), head = found.h ?? 0;
  return { stack: stack as StackName, layer: Number(layer), part: part as Part, head, index: found, z: `${stack}.blocks.${layer}.${part}.z[h=${head}]` };
}

export function curvesIn({ json }: Reply<OverviewReply>): Curve[] {
  return (json.curves ?? []).map(({ at, weight, moved, p }): Curve => {
    const { index, ...place } = placeOf(at);
    return { ...place, to: index.t ?? 0, from: index.s ?? 0, weight, moved, p: p ?? NaN };
  });
}

/** The strongest curve of a head: of another word, if there is one that matters. */
export function telling(curves: readonly Curve[], z: string): Curve | null {
  const own = curves.filter((one) => one.z === z && (one.part === "cross" || one.to !== one.from));
  return best(own, (one) => one.moved) ?? null;
}

/** Where the places begin: at the pair of a head that carries most into the answer; if none was measured, at what its words look at.
 *  Those of one word begin at the one that is read; of a text that is translated, at what that one reads most of. */
export function toldOf(run: Run, z: string, curves: readonly Curve[]): First {
  const own = telling(curves, z), told = own ? { stack: own.stack, layer: own.layer, part: own.part, head: own.head, query: own.to, key: own.from } : mostTelling(run, z);
  if (!told) return { told, word: null };
  const { stack, layer, part, key } = told;
  if (part !== "cross") return { told, word: { stack, layer, query: key } };
  const from = best(curves.filter((one) => one.stack === "encoder" && one.to === key && one.from !== key), (one) => one.moved);
  return { told, word: { stack: "encoder", layer: from?.layer ?? 0, part: "attn", query: from?.from ?? key } };
}

export interface First { told: Telling | null; word: Partial<Page> | null }
export type Telling = Pick<Page, "stack" | "layer" | "part" | "head" | "query" | "key">;

/** The attentions of a model, by the addresses of their values without the last name. */
export function attentionsOf({ plan }: Pick<Run, "plan">): (Omit<Place, "head"> & { at: string })[] {
  return plan.ops.flatMap(({ out }) => {
    const [, at, stack, layer, part] = /^((encoder|decoder)\.blocks\.(\d+)\.(attn|cross))\.weights$/.exec(out) ?? [];
    return at === undefined ? [] : [{ at, stack: stack as StackName, layer: Number(layer), part: part as Part }];
  });
}

/** Of the cross-attentions, or else of all, the head in which each word looks most at a word of its own choice; or the one
 *  at `z`, `encoder.blocks.0.attn.z[h=3]`. It is seen at the word that looks most. */
export function mostTelling(run: Run, z = ""): Telling | null {
  const all = attentionsOf(run), cross = all.filter(({ at, part }) => (z ? z.startsWith(`${at}.z[`) : part === "cross"));
  let found: Telling | null = null, most = 0;
  for (const { at, stack, layer, part } of cross.length ? cross : all) {
    const queries = run.reply.tokens[stack] ?? [], keys = run.reply.tokens[part === "cross" ? "encoder" : stack] ?? [];
    run.heads(`${at}.weights`).forEach(({ pixels, max, rows, cols }, head) => {
      if (z && !z.endsWith(`[h=${head}]`)) return;
      const looks = Array.from({ length: rows }, (_, query) => {
        const cells = pixels.subarray(query * cols, (query + 1) * cols);
        return strongest(cells, max[query] ?? 0, (key) => isWord(queries, query) && isWord(keys, key) && (part === "cross" || key !== query));
      });
      const chosen = new Set(looks.filter(({ share }) => share > 0).map(({ key }) => key));
      const score = looks.reduce((sum, { share }) => sum + share, 0) * chosen.size;
      if (score <= most) return;
      const query = looks.reduce((top, { share }, i) => (share > looks[top]!.share ? i : top), 0);
      [most, found] = [score, { stack, layer, part, head, query, key: looks[query]!.key }];
    });
  }
  return found;
}

const LETTER = /\p{L}/u;

/** Of a text with words, a piece of one; patches have no tokens: each counts. */
function isWord(tokens: readonly Token[], i: number): boolean {
  const token = tokens[i];
  const isText = token !== undefined && token.span !== null;
  return tokens.length === 0 || (isText && (LETTER.test(token.text) || !tokens.some(({ span, text }) => span && LETTER.test(text))));
}

/** The key with the largest share of a row, of those that count. */
function strongest(cells: Uint8Array, max: number, counts: (key: number) => boolean): { key: number; share: number } {
  let key = 0, most = -1;
  cells.forEach((pixel, i) => {
    if (pixel > most && counts(i)) [key, most] = [i, pixel];
  });
  return { key, share: (Math.max(0, most) / 255) * max };
}
