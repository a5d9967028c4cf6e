/** The pieces of a word, by each model of tokenizer.json. */

import { utf8 } from "./bytes";

/** A piece with its place in the word, [start, end) in characters. */
export interface Piece { id: number; text: string; start: number; end: number }

export interface Model {
  readonly ids: ReadonlyMap<string, number>;
  pieces(word: readonly string[]): Piece[];
}

type Numbers = Record<string, number>;
interface BytePairRules {
  vocab: Numbers; merges: ([string, string] | string)[]; unk_token: string | null; fuse_unk: boolean; byte_fallback: boolean;
  continuing_subword_prefix: string | null; end_of_word_suffix: string | null; ignore_merges?: boolean;
}
interface UnigramRules { vocab: [string, number][]; unk_id: number | null; byte_fallback?: boolean }
interface WordRules { vocab: Numbers; unk_token: string; continuing_subword_prefix: string; max_input_chars_per_word: number }
export type ModelRules = { type: string } & object;

export function modelOf(rules: ModelRules): Model {
  switch (rules.type) {
    case "BPE": return new BytePairs(rules as unknown as BytePairRules);
    case "Unigram": return new Unigram(rules as unknown as UnigramRules);
    case "WordPiece": return new WordPieces(rules as unknown as WordRules);
    default: return new WordLevel(rules as unknown as WordRules);
  }
}

function bytePieces(ids: ReadonlyMap<string, number>, text: string): [string, number][] | null {
  const names = utf8(text).map((byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);
  return names.every((name) => ids.has(name)) ? names.map((name) => [name, ids.get(name)!]) : null;
}

// --- byte-pair encoding (Sennrich et al. 2016) ---

export interface Merge { left: string; right: string; rank: number }

export class BytePairs implements Model {
  readonly ids: ReadonlyMap<string, number>;
  readonly prefix: string;
  readonly suffix: string;
  readonly unknown: string | null;
  readonly #ranks: ReadonlyMap<string, number>;

  constructor(private readonly rules: BytePairRules) {
    this.ids = new Map(Object.entries(rules.vocab));
    this.#ranks = new Map(rules.merges.map((merge, rank) => [typeof merge === "string" ? merge : merge.join(" "), rank]));
    [this.prefix, this.suffix, this.unknown] = [rules.continuing_subword_prefix ?? "", rules.end_of_word_suffix ?? "", rules.unk_token];
  }

  pieces(word: readonly string[]): Piece[] {
    const text = word.join(""), whole = this.rules.ignore_merges ? this.ids.get(text) : undefined;
    return whole === undefined ? this.#merged(this.#start(word)) : [{ id: whole, text, start: 0, end: word.length }];
  }

  /** The pieces before any merge. */
  #start(word: readonly string[]): Piece[] {
    const found: Piece[] = [], { fuse_unk, byte_fallback } = this.rules;
    let unknown: Piece | null = null;
    word.forEach((char, i): unknown => {
      const text = (i ? this.prefix : "") + char + (i === word.length - 1 ? this.suffix : ""), id = this.ids.get(text), place = { start: i, end: i + 1 };
      const bytes = id === undefined && byte_fallback ? bytePieces(this.ids, text) : null;
      if (bytes) return found.push(...bytes.map(([name, number]) => ({ id: number, text: name, ...place })));
      if (id === undefined && this.unknown === null) return null;
      if (id === undefined && unknown && fuse_unk) return (unknown.end = i + 1);
      if (unknown) found.push(unknown);
      unknown = id === undefined ? { id: this.ids.get(this.unknown!)!, text: this.unknown!, ...place } : null;
      return id !== undefined && found.push({ id, text, ...place });
    });
    if (unknown) found.push(unknown);
    return found;
  }

  /** Merges the pair of the lowest rank, the leftmost among equals, until none is left. */
  #merged(pieces: Piece[]): Piece[] {
    const next = pieces.map((_, i) => i + 1), before = pieces.map((_, i) => i - 1), gone = new Uint8Array(pieces.length);
    const heap = new Heap(pieces.length + 1), rankAt = (i: number): number | undefined => {
      const [left, right] = [pieces[i], pieces[next[i]!]];
      return left && right && this.rank(left.text, right.text);
    };
    const offer = (i: number): void => {
      const rank = i >= 0 ? rankAt(i) : undefined;
      if (rank !== undefined) heap.push(rank, i);
    };
    pieces.forEach((_, i) => offer(i));
    for (let top = heap.pop(); top; top = heap.pop()) {
      const { rank, at } = top;
      if (gone[at] || rankAt(at) !== rank) continue;
      const left = pieces[at]!, other = next[at]!, right = pieces[other]!, text = left.text + right.text.slice(this.prefix.length);
      pieces[at] = { id: this.ids.get(text)!, text, start: left.start, end: right.end };
      gone[other] = 1;
      next[at] = next[other]!;
      if (next[at]! < pieces.length) before[next[at]!] = at;
      offer(before[at]!);
      offer(at);
    }
    return pieces.filter((_, i) => !gone[i]);
  }

  rank(left: string, right: string): number | undefined {
    return this.#ranks.get(`${left} ${right}`);
  }

  /** A word's characters as the model first sees them, and each merge with the pieces after it. */
  replay(word: readonly string[]): { start: string[]; merges: (Merge & { pieces: string[] })[] } {
    let pieces = this.#start(word).map(({ text }) => text);
    const start = pieces, merges: (Merge & { pieces: string[] })[] = [];
    for (;;) {
      let best = -1, least = Infinity;
      for (let i = 0; i + 1 < pieces.length; i++) {
        const rank = this.rank(pieces[i]!, pieces[i + 1]!) ?? Infinity;
        if (rank < least) [best, least] = [i, rank];
      }
      if (best < 0) return { start, merges };
      const [left, right] = [pieces[best]!, pieces[best + 1]!];
      pieces = [...pieces.slice(0, best), left + right.slice(this.prefix.length), ...pieces.slice(best + 2)];
      merges.push({ left, right, rank: least, pieces });
    }
  }
}

/** Ranks with their places; the lowest first, and the leftmost among equals. */
class Heap {
  #keys: number[] = [];

  constructor(private readonly places: number) {}

  push(rank: number, at: number): void {
    const keys = this.#keys, key = rank * this.places + at;
    let i = keys.push(key) - 1;
    for (let up = (i - 1) >> 1; i > 0 && keys[up]! > key; up = (i - 1) >> 1) {
      keys[i] = keys[up]!;
      i = up;
    }
    keys[i] = key;
  }

  pop(): { rank: number; at: number } | null {
    const keys = this.#keys, top = keys[0], last = keys.pop();
    if (top === undefined || last === undefined) return null;
    if (keys.length) {
      let i = 0;
      for (let down = 1; down < keys.length; down = 2 * i + 1) {
        if (down + 1 < keys.length && keys[down + 1]! < keys[down]!) down++;
        if (keys[down]! >= last) break;
        keys[i] = keys[down]!;
        i = down;
      }
      keys[i] = last;
    }
    return { rank: Math.floor(top / this.places), at: top % this.places };
  }
}

// --- unigram (Kudo 2018) ---

const PENALTY = 10;

class Unigram implements Model {
  readonly ids: ReadonlyMap<string, number>;
  readonly #longest: number;
  readonly #unknownScore: number;

  constructor(private readonly rules: UnigramRules) {
    const { vocab } = rules;
    this.ids = new Map(vocab.map(([text], id) => [text, id]));
    this.#longest = vocab.reduce((most, [text]) => Math.max(most, text.length), 1);
    this.#unknownScore = vocab.reduce((least, [, score]) => Math.min(least, score), Infinity) - PENALTY;
  }

  /** The likeliest pieces; what no piece spells is one unknown piece, or bytes. */
  pieces(word: readonly string[]): Piece[] {
    const { vocab, unk_id, byte_fallback } = this.rules, n = word.length;
    const scores = new Float64Array(n + 1), from = new Int32Array(n + 1).fill(-1), ids = new Int32Array(n + 1);
    const offer = (start: number, end: number, id: number, score: number): void => {
      const whole = score + scores[start]!;
      if (from[end]! >= 0 && whole <= scores[end]!) return;
      [scores[end], from[end], ids[end]] = [whole, start, id];
    };
    for (let start = 0; start < n; start++) {
      let text = "", isKnown = false;
      for (let end = start + 1; end <= n && text.length <= this.#longest; end++) {
        const id = this.ids.get((text += word[end - 1]!));
        if (id === undefined) continue;
        offer(start, end, id, vocab[id]![1]);
        isKnown ||= end === start + 1;
      }
      if (!isKnown) offer(start, start + 1, unk_id ?? -1, this.#unknownScore);
    }
    const places: [number, number][] = [];
    for (let end = n; end > 0; end = from[end]!) {
      const start = from[end]!, isUnknown = ids[end] === unk_id, last = places[0];
      if (isUnknown && last && ids[last[1]] === unk_id) last[0] = start;
      else places.unshift([start, end]);
    }
    return places.flatMap(([start, end]): Piece[] => {
      const text = word.slice(start, end).join(""), id = this.ids.get(text);
      const bytes = id === undefined && byte_fallback ? bytePieces(this.ids, text) : null;
      return (bytes ?? [[text, id ?? unk_id ?? -1] as const]).map(([name, number]) => ({ id: number, text: name, start, end }));
    });
  }
}

// --- words, and pieces of words (Wu et al. 2016) ---

class WordLevel implements Model {
  readonly ids: ReadonlyMap<string, number>;

  constructor(protected readonly rules: WordRules) {
    this.ids = new Map(Object.entries(rules.vocab));
  }

  pieces(word: readonly string[]): Piece[] {
    const text = word.join(""), id = this.ids.get(text);
    return id === undefined ? this.unknown(word) : [{ id, text, start: 0, end: word.length }];
  }

  unknown({ length }: readonly string[]): Piece[] {
    const { unk_token: text } = this.rules;
    return [{ id: this.ids.get(text)!, text, start: 0, end: length }];
  }
}

class WordPieces extends WordLevel {
  override pieces(word: readonly string[]): Piece[] {
    const { continuing_subword_prefix: prefix, max_input_chars_per_word: most } = this.rules, found: Piece[] = [];
    if (word.length > most) return this.unknown(word);
    for (let start = 0, end = word.length; start < word.length; end = word.length) {
      const name = (): string => (start ? prefix : "") + word.slice(start, end).join("");
      while (end > start && !this.ids.has(name())) end--;
      if (end === start) return this.unknown(word);
      found.push({ id: this.ids.get(name())!, text: name(), start, end });
      start = end;
    }
    return found;
  }
}
