/** Where tokens stand in their text, and how a text is cut into them: the twin of clearhead/text/tokenizers.py,
 *  clearhead/explorer/recording/tokens.py and clearhead/explorer/answering/words.py. */

import type { Token, TokenizeReply } from "../core/protocol";
import { BytePairs } from "./models";
import type { Cut, Tokenizer } from "./tokenizer";

type Span = [number, number];
type Word = TokenizeReply["words"][number];

const SPACES = "[\\p{White_Space}\\x1c-\\x1f]+", LEADING = new RegExp(`^${SPACES}`, "u"), TRAILING = new RegExp(`${SPACES}$`, "u");
const LONGEST = 256, UNSEEN = "\0";

const start = (text: string): string => text.replace(LEADING, "");
const strip = (text: string): string => start(text).replace(TRAILING, "");
const isSpace = (piece: string): boolean => /^▁*$/.test(piece);

/** [start, end) of each token, without the space before it; the space in front of a text has an empty range. */
export function offsets(chars: readonly string[], cuts: readonly Cut[]): Span[] {
  return cuts.map(({ piece, start: from, end }, i) => {
    const own = chars.slice(from, end).join(""), after = cuts[i + 1]?.start ?? chars.length;
    if (isSpace(piece) && (strip(own.replaceAll("▁", " ")) || after < end)) return [from, from];
    return strip(own) ? [end - [...start(own)].length, end] : [from, end];
  });
}

/** Where each piece stands in a text, in order, with only spaces between; null for one that does not. */
export function matched(text: string, pieces: readonly string[]): (Span | null)[] {
  let cursor = 0;
  const count = (end: number): number => [...text.slice(0, end)].length;
  return pieces.map((piece) => {
    const bare = strip(piece.replaceAll("▁", " ")), at = bare ? text.indexOf(bare, cursor) : -1;
    if (at < 0 || strip(text.slice(cursor, at))) return null;
    cursor = at + bare.length;
    return [count(at), count(cursor)];
  });
}

/** The words of a text that hold something unknown, each once. */
export function unknownWords(chars: readonly string[], cuts: readonly Cut[], unknown: number | null): string[] {
  const found = new Set<string>(), isWord = (i: number): boolean => /[\p{L}\p{N}]/u.test(chars[i] ?? "");
  for (const { id, start: from, end } of cuts) {
    const own = chars.slice(from, end).join(""), bare = strip(own);
    if (id !== unknown || !bare) continue;
    let first = from + [...own.slice(0, own.indexOf(bare))].length, last = first + [...bare].length;
    while (isWord(first) && isWord(first - 1)) first--;
    while (isWord(last - 1) && isWord(last)) last++;
    found.add(chars.slice(first, last).join(""));
  }
  return [...found];
}

/** The words of a text with their tokens and merges. */
export function words(tokenizer: Tokenizer, text: string, shown: (id: number) => string): Word[] {
  const chars = [...text], cuts = tokenizer.encode(text), spans = offsets(chars, cuts), found: number[][] = [];
  cuts.forEach(({ id, word }, i) => {
    const before = cuts[i - 1], joins = before?.word === word && (isSpace(shown(before.id)) || !shown(id).startsWith("▁"));
    if (joins) found.at(-1)!.push(i);
    else found.push([i]);
  });
  return found.map((places) => {
    const tokens = places.map((i): Token => ({ id: cuts[i]!.id, text: shown(cuts[i]!.id), span: spans[i]!, type: 0 }));
    const end = Math.max(...places.map((i) => spans[i]![1])), own = chars.slice(spans[places[0]!]![0], end).join(""), bare = start(own);
    const span: Span = [bare ? end - [...bare].length : spans[places[0]!]![0], end];
    const history = merges(tokenizer, places.map((i) => cuts[i]!.piece), shown) ?? { start: tokens.map((token) => token.text), merges: [] };
    return { text: chars.slice(...span).join(""), span, ...history, tokens };
  });
}

/** The pieces before any merge, and each merge; null for a model without merges, and for bytes of a character without a piece. */
function merges({ model }: Tokenizer, pieces: readonly string[], shown: (id: number) => string): Pick<Word, "start" | "merges"> | null {
  if (!(model instanceof BytePairs) || pieces.length > LONGEST) return null;
  const known = pieces.map((piece) => (piece === model.unknown ? UNSEEN : piece));
  const bare = known.map((piece, i) => (i && piece.startsWith(model.prefix) ? piece.slice(model.prefix.length) : piece)).join("");
  const word = [...(bare.endsWith(model.suffix) ? bare.slice(0, bare.length - model.suffix.length) : bare)];
  if (word.length > LONGEST) return null;
  const { start: first, merges: history } = model.replay(word), name = (piece: string): string => {
    const id = model.ids.get(piece);
    return id === undefined ? piece : shown(id);
  };
  if ((history.at(-1)?.pieces ?? first).join("\0") !== pieces.join("\0")) return null;
  const told = history.map(({ left, right, rank, pieces: after }) => ({ left: name(left), right: name(right), rank, pieces: after.map(name) }));
  return { start: first.map(name), merges: told };
}
