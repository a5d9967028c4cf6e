/** The head and the pair of tokens that a reader looks at first. */

import type { StackName, Token } from "../core/protocol";
import type { Page, Part } from "./page";
import type { Run } from "./run";

export type Telling = Pick<Page, "stack" | "layer" | "part" | "head" | "query" | "key">;

/** Of the cross-attentions, or else of all, the head in which each word looks most at a word of its own choice; or the one
 *  at `z`, `encoder.blocks.0.attn.z[h=3]`. It is seen at the word that looks most, or at `word`. */
export function mostTelling(run: Run, z = "", word?: number): Telling | null {
  const all = run.plan.ops.flatMap(({ out }) => {
    const found = /^(encoder|decoder)\.blocks\.(\d+)\.(attn|cross)\.weights$/.exec(out);
    return found ? [{ out, stack: found[1] as StackName, layer: Number(found[2]), part: found[3] as Part }] : [];
  });
  const cross = all.filter(({ out, part }) => (z ? z.startsWith(out.replace(/weights$/, "z[")) : part === "cross"));
  let best: Telling | null = null, most = 0;
  for (const { out, stack, layer, part } of cross.length ? cross : all) {
    const queries = run.reply.tokens[stack] ?? [], keys = run.reply.tokens[part === "cross" ? "encoder" : stack] ?? [];
    run.heads(out).forEach(({ pixels, max, rows, cols }, head) => {
      if (z && !z.endsWith(`[h=${head}]`)) return;
      const looks = Array.from({ length: rows }, (_, query) => {
        const cells = pixels.subarray(query * cols, (query + 1) * cols);
        return strongest(cells, max[query] ?? 0, (key) => isWord(queries, query) && isWord(keys, key) && (part === "cross" || key !== query));
      });
      const chosen = new Set(looks.filter(({ share }) => share > 0).map(({ key }) => key));
      const score = looks.reduce((sum, { share }) => sum + share, 0) * chosen.size;
      if (score <= most) return;
      const query = word ?? looks.reduce((top, { share }, i) => (share > looks[top]!.share ? i : top), 0);
      [most, best] = [score, { stack, layer, part, head, query, key: looks[query]!.key }];
    });
  }
  return best;
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
