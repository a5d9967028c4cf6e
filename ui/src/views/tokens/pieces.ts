/** Where tokens stand in their text, and the merges that made them. */

import type { StackName, Token, TokenizeReply } from "../../core/protocol";
import { tokenText } from "../../draw/format";

export type Word = TokenizeReply["words"][number];

/** A text that was read, with its tokens: `first` is the position of the first of them. */
export interface Read { stack: StackName; name: string; text: string; tokens: Token[]; first: number; target: boolean }

/** Which of several texts each token belongs to: a new text begins after a mark if positions in the text start again. */
export function textOf(tokens: readonly Pick<Token, "span">[]): number[] {
  let text = 0, last = -1, marked = false;
  return tokens.map(({ span }) => {
    if (!span) marked = true;
    else {
      if (marked && span[0] <= last) text++;
      [last, marked] = [span[0], false];
    }
    return text;
  });
}

/** The pieces of a word after so many merges, and the one that the last of them made; null before any. */
export function piecesAfter(word: Word, merges: number): { pieces: string[]; made: number | null } {
  const at = Math.max(0, Math.min(merges, word.merges.length));
  const pieces = at === 0 ? word.start : word.merges[at - 1]!.pieces;
  if (at === 0) return { pieces, made: null };
  const before = at === 1 ? word.start : word.merges[at - 2]!.pieces;
  const made = pieces.findIndex((piece, i) => piece !== before[i]);
  return { pieces, made: made < 0 ? null : made };
}

/** The word that a character belongs to; else the one with most merges. */
export function wordAt(words: readonly Word[], character: number | null): number {
  const found = character === null ? -1 : words.findIndex(({ span }) => span[0] <= character && character < span[1]);
  if (found >= 0) return found;
  return words.reduce((best, word, i) => (word.merges.length > (words[best]?.merges.length ?? -1) ? i : best), 0);
}

/** A text with its whitespace made visible. */
export const spaced = (text: string): string => tokenText(text).replace(/[ \u00a0]/g, tokenText);
