/** Where tokens stand in their text, and the merges that made them. */

import type { Token, TokenizeReply } from "../../core/protocol";

export type Word = TokenizeReply["words"][number];

/** A stretch of a text that the same tokens cover: with most tokenizers one token, or none between two. */
export interface Stretch { text: string; tokens: number[] }

/** A text cut wherever a span begins or ends. Spans count characters, as Python does: "😀" is one. */
export function stretches(text: string, tokens: readonly Pick<Token, "span">[]): Stretch[] {
  const characters = Array.from(text);
  const inside = (at: number): boolean => at >= 0 && at <= characters.length;
  const spans = tokens.map(({ span }) => span);
  const cuts = new Set([0, characters.length, ...spans.flatMap((span) => span ?? []).filter(inside)]);
  const ordered = [...cuts].sort((one, other) => one - other);
  return ordered.slice(0, -1).map((start, i) => {
    const end = ordered[i + 1]!;
    const covers = (span: [number, number] | null | undefined): boolean => !!span && span[0] <= start && span[1] >= end;
    return { text: characters.slice(start, end).join(""), tokens: spans.flatMap((span, j) => (covers(span) ? [j] : [])) };
  });
}

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

const MARKS: Record<string, string> = { " ": "␣", "\n": "⏎", "\t": "⇥", "\u00a0": "⍽" };

/** A text with its whitespace made visible. */
export function spaced(text: string): string {
  return text === "" ? "∅" : text.replace(/[ \n\t\u00a0]/g, (mark) => MARKS[mark]!);
}
