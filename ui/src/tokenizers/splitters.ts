/** How a tokenizer cuts a text into words: the pre-tokenizers of tokenizer.json. */

import { found, mapped, prepended, split, type Aligned, type Behavior } from "./aligned";
import { bytesOf } from "./bytes";
import { patternOf, type Pattern, type Step } from "./normalizers";
import { literal, regex } from "./regex";
import { POINT } from "./unicode";

type Rule = (text: Aligned, step: any) => Aligned[];

/** Radford et al. 2019. */
const WORDS = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const SPACE = /\p{White_Space}/gu;
/** The `\w` of the library in Rust. */
const LETTERS = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}";
export const LETTER = new RegExp(`[${LETTERS}]`, "u");

export function cut(texts: Aligned[], step: Step | null): Aligned[] {
  if (!step) return texts;
  if (step.type === "Sequence") return (step as Step & { pretokenizers: Step[] }).pretokenizers.reduce(cut, texts);
  return texts.flatMap((text) => RULES[step.type]!(text, step)).filter(({ chars }) => chars.length);
}

const RULES: Record<string, Rule> = {
  ByteLevel: (text, { add_prefix_space, use_regex = true }: { add_prefix_space: boolean; use_regex?: boolean }) => {
    const whole = add_prefix_space && text.chars[0] !== " " ? prepended(text, " ") : text;
    return (use_regex ? split(whole, found(whole, regex(WORDS)), "Isolated") : [whole]).map(bytesOf);
  },
  Metaspace: (text, { replacement, prepend_scheme = "always", split: splits = true }: { replacement: string; prepend_scheme?: string; split?: boolean }) => {
    const own = mapped(text, (char) => [char === " " ? replacement : char]), isFirst = text.from[0] === 0;
    const starts = own.chars[0] !== replacement && (prepend_scheme === "always" || (prepend_scheme === "first" && isFirst));
    const whole = starts ? prepended(own, replacement) : own;
    return splits ? split(whole, found(whole, literal(replacement)), "MergedWithNext") : [whole];
  },
  Split: (text, { pattern, behavior, invert }: { pattern: Pattern; behavior: Behavior; invert: boolean }) =>
    split(text, found(text, patternOf(pattern)).map((one) => ({ ...one, hit: one.hit !== invert })), behavior),
  Punctuation: (text, { behavior }: { behavior: Behavior }) => split(text, found(text, POINT), behavior),
  Digits: (text, { individual_digits }: { individual_digits: boolean }) => split(text, found(text, /\p{N}/gu), individual_digits ? "Isolated" : "Contiguous"),
  Whitespace: (text) => split(text, found(text, new RegExp(`[${LETTERS}]+|[^${LETTERS}\\p{White_Space}]+`, "gu")).map((one) => ({ ...one, hit: !one.hit })), "Removed"),
  WhitespaceSplit: (text) => split(text, found(text, SPACE), "Removed"),
  CharDelimiterSplit: (text, { delimiter }: { delimiter: string }) => split(text, found(text, literal(delimiter)), "Removed"),
  BertPreTokenizer: (text) => split(text, found(text, SPACE), "Removed").flatMap((word) => split(word, found(word, POINT), "Isolated")),
};
