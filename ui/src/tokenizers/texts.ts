/** What a model reads of any text, as clearhead/api/reader.py makes it. */

import type { StackName, Token, TokenizeReply } from "../core/protocol";
import { matched, offsets, unknownWords, words } from "./offsets";
import { Tokenizer, type Rules } from "./tokenizer";

/** What stands around a text of a stack; `again`: a decoder that reads the encoder's text after its start token. */
interface Reads { before: number[]; after: number[]; prefix: string; limit: number | null; most: number; again: boolean }

/** Part `tokenizer` of a file (clearhead/explorer/export/carried.py); no rules: texts are numbers of tokens. */
export interface Carried { rules: Rules | null; keeps_special: boolean; unknown: number | null; size: number; reads: Partial<Record<StackName, Reads>> }

export interface Read { tokens: Partial<Record<StackName, Token[]>>; unknown: string[] }

type Say = (key: string, values?: Record<string, string | number>) => string;

export class Texts {
  readonly #tokenizer: Tokenizer | null;

  /** `shown` is the text of a token, `say` one of the page's texts. */
  constructor(private readonly carried: Carried, private readonly shown: (id: number) => string, private readonly say: Say) {
    this.#tokenizer = carried.rules && new Tokenizer(carried.rules, carried.keeps_special);
  }

  /** `written` are the ids that a decoder reads after its start token, in place of those of the target. Throws one line for a
   *  text that the model cannot read. */
  read(text: string, target: string | null, written: readonly number[] | null): Read {
    const tokens: Read["tokens"] = {};
    let first: number[] = [];
    for (const [stack, reads] of Object.entries(this.carried.reads) as [StackName, Reads][]) {
      const isFirst = !first.length, own = isFirst || reads.again ? text : target ?? "";
      const ids = isFirst ? (first = this.#around(text, reads)) : reads.again ? [...reads.before, ...first.slice(0, -1)]
        : written ? [...reads.before.slice(0, 1), ...written] : [...reads.before, ...this.#ids(own)];
      if (!ids.length) throw new Error(this.say("error.empty"));
      if (ids.length > reads.most) throw new Error(this.say("file.long", { n: ids.length, most: reads.most }));
      tokens[stack] = this.#tokens(ids, own);
    }
    return { tokens, unknown: this.#tokenizer ? unknownWords([...text], this.#tokenizer.encode(text), this.carried.unknown) : [] };
  }

  tokenize(text: string): TokenizeReply {
    const chars = [...text], tokenizer = this.#tokenizer;
    if (!tokenizer) return { words: [], unknown: [] };
    return { words: words(tokenizer, text, this.shown), unknown: unknownWords(chars, tokenizer.encode(text), this.carried.unknown) };
  }

  #around(text: string, { before, after, prefix, limit }: Reads): number[] {
    const ids = this.#ids(prefix + text), room = limit === null ? ids.length : Math.max(limit - before.length - after.length, 0);
    return [...before, ...ids.slice(0, room), ...after];
  }

  #ids(text: string): number[] {
    if (this.#tokenizer) return this.#tokenizer.encode(text).map(({ id }) => id);
    return (text.match(/\S+/g) ?? []).map((part) => {
      if (!/^\d{1,9}$/.test(part) || Number(part) >= this.carried.size) throw new Error(this.say("file.numbers", { most: this.carried.size - 1, got: part }));
      return Number(part);
    });
  }

  #tokens(ids: readonly number[], text: string): Token[] {
    const spans = this.#spans(ids, text);
    return ids.map((id, i) => ({ id, text: this.shown(id), span: spans[i] ?? null, type: 0 }));
  }

  #spans(ids: readonly number[], text: string): ([number, number] | null)[] {
    if (!text) return [];
    const cuts = this.#tokenizer?.encode(text) ?? [], n = cuts.length;
    const at = n ? ids.findIndex((_, i) => cuts.every(({ id }, j) => ids[i + j] === id)) : -1;
    if (at < 0) return matched(text, ids.map(this.shown));
    return [...Array.from({ length: at }, () => null), ...offsets([...text], cuts)];
  }
}
