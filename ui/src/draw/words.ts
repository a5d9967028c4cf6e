/** The words that tokens spell, by the rule of `_words_of` of clearhead/explorer/answering/overview.py. */

import type { Token } from "../core/protocol";
import { tokenText, wordOf } from "./format";

/** A piece that goes on with the word before it. */
export const goesOn = (token?: Token): boolean => /^##/.test(token?.text ?? "");

const PIECE = /^[\p{L}\p{N}'’]+$/u, ALONE = /['’]$|[\u0e00-\u0eff\u3040-\u9fff]/;

/** `on`: it goes on with the word before it. */
export interface Spoken extends Token { on?: boolean }

/** The tokens as a sentence names them: a piece with those of its word before it, and a sign where the word goes on. A word ends with an apostrophe; the first of a lane of pieces stands for all. */
export function joined(tokens: readonly Token[], lanes: readonly { tokens: readonly number[] }[] = []): Spoken[] {
  const isLetters = tokens.every(({ text, span }) => !span || text.length < 3), on: boolean[] = [], texts: string[] = [];
  tokens.forEach(({ text, span }, i) => {
    const word = texts[i - 1] ?? "", isOn = i > 0 && (goesOn(tokens[i]) || (!isLetters && !!span && span[0] === tokens[i - 1]!.span?.[1] && PIECE.test(wordOf(word) + text) && !ALONE.test(word)));
    on.push(isOn);
    texts.push(isOn ? word + text.replace(/^##/, "") : text);
  });
  const endOf = (own: readonly number[], i: number): number => (on[i + 1] && own.includes(i + 1) ? endOf(own, i + 1) : i);
  return tokens.map((one, i) => {
    const end = endOf(lanes.find(({ tokens: [first] }) => first === i)?.tokens ?? [], i);
    return { ...one, text: texts[end]! + (on[end + 1] ? "…" : ""), on: on[i]! };
  });
}

/** Their texts as they are shown. */
export const textsOf = (tokens: readonly Token[]): string[] => joined(tokens).map(({ text }) => tokenText(text));

/** The tokens of each word, and the signs before a text as one. */
export function grouped(tokens: readonly Token[]): number[][] {
  const made: number[][] = [], before = tokens.findIndex(({ span }) => span);
  for (const [i, { on, text }] of joined(tokens).entries()) {
    if (on || (i && i < before && text.startsWith("<"))) made.at(-1)!.push(i);
    else made.push([i]);
  }
  return made;
}
