/** Text to token ids by the rules of a tokenizer.json, as the library `tokenizers` reads them. */

import { aligned, found, slice, type Aligned } from "./aligned";
import { modelOf, type Model, type ModelRules } from "./models";
import { normalize, normalized, type Step } from "./normalizers";
import { escaped } from "./regex";
import { cut, LETTER } from "./splitters";

interface AddedToken { id: number; content: string; single_word: boolean; lstrip: boolean; rstrip: boolean; normalized: boolean; special: boolean }

export interface Rules { normalizer: Step | null; pre_tokenizer: Step | null; model: ModelRules; added_tokens: AddedToken[] }

/** A token of a text: its piece, its place [start, end) in the text, and the number of its word. */
export interface Cut { id: number; piece: string; start: number; end: number; word: number }

/** Finds added tokens, the longest where several begin. */
interface Finder { pattern: RegExp; tokens: ReadonlyMap<string, AddedToken> }

interface Part { text: Aligned; token: AddedToken | null }

export class Tokenizer {
  readonly model: Model;
  readonly #finders: (Finder | null)[];
  readonly #known = new Map<string, ReturnType<Model["pieces"]>>();

  /** `keepsSpecial`: a text that spells a special token stays text. */
  constructor(private readonly rules: Rules, private readonly keepsSpecial: boolean) {
    this.model = modelOf(rules.model);
    const tokens = rules.added_tokens;
    this.#finders = [
      finderOf(tokens.filter((token) => !token.normalized), (content) => content),
      finderOf(tokens.filter((token) => token.normalized), (content) => normalized(content, rules.normalizer)),
    ];
  }

  encode(text: string): Cut[] {
    const [first, second] = this.#finders, { normalizer, pre_tokenizer } = this.rules;
    const parts = this.#apart({ text: aligned(text), token: null }, first!)
      .map((part) => (part.token ? part : { ...part, text: normalize(part.text, normalizer) }))
      .flatMap((part) => this.#apart(part, second!))
      .flatMap((part) => (part.token ? [part] : cut([part.text], pre_tokenizer).map((word) => ({ text: word, token: null }))));
    return parts.filter(({ text: { chars } }) => chars.length).flatMap(({ text: { chars, from, to }, token }, word) => {
      const pieces = token ? [{ id: token.id, text: token.content, start: 0, end: chars.length }] : this.#pieces(chars);
      return pieces.map(({ id, text: piece, start, end }) => ({ id, piece, start: from[start]!, end: to[end - 1]!, word }));
    });
  }

  #pieces(chars: readonly string[]): ReturnType<Model["pieces"]> {
    const word = chars.join("");
    let pieces = this.#known.get(word);
    if (!pieces) {
      if (this.#known.size > 10_000) this.#known.clear();
      this.#known.set(word, (pieces = this.model.pieces(chars)));
    }
    return pieces;
  }

  /** Cuts a text at the added tokens in it. */
  #apart(part: Part, finder: Finder | null): Part[] {
    if (part.token || !finder) return [part];
    const { text } = part, { chars } = text, out: Part[] = [], isSpace = (i: number): boolean => /\p{White_Space}/u.test(chars[i] ?? "x");
    let last = 0;
    for (let { start, end, hit } of found(text, finder.pattern)) {
      const token = hit ? finder.tokens.get(chars.slice(start, end).join(""))! : null;
      if (!token || (this.keepsSpecial && token.special)) continue;
      if (token.single_word && (LETTER.test(chars[start - 1] ?? "") || LETTER.test(chars[end] ?? ""))) continue;
      while (token.lstrip && start > last && isSpace(start - 1)) start--;
      while (token.rstrip && isSpace(end)) end++;
      if (start > last) out.push({ text: slice(text, last, start), token: null });
      out.push({ text: slice(text, start, end), token });
      last = end;
    }
    return last < chars.length ? [...out, { text: slice(text, last), token: null }] : out;
  }
}

function finderOf(tokens: readonly AddedToken[], form: (content: string) => string): Finder | null {
  const named = new Map(tokens.map((token) => [form(token.content), token]).filter(([content]) => content) as [string, AddedToken][]);
  if (!named.size) return null;
  const longest = [...named.keys()].sort((a, b) => b.length - a.length).map((name) => [...name].map(escaped).join(""));
  return { pattern: new RegExp(longest.join("|"), "gv"), tokens: named };
}
