/** What a tokenizer makes of a text before it cuts it: the steps of tokenizer.json. */

import { add, aligned, mapped, prepended, replaced, slice, type Aligned } from "./aligned";
import { bytesOf } from "./bytes";
import { literal, regex } from "./regex";
import { isMark, isNonspacing, isOther, UNKNOWN } from "./unicode";

export type Pattern = { String: string } | { Regex: string };
export interface Step { type: string }
/** Each knows its own settings. */
type Rule = (text: Aligned, step: any) => Aligned;

export function patternOf(pattern: Pattern): RegExp {
  return "String" in pattern ? literal(pattern.String) : regex(pattern.Regex);
}

export function normalize(text: Aligned, step: Step | null): Aligned {
  return step ? RULES[step.type]!(text, step) : text;
}

const RULES: Record<string, Rule> = {
  Sequence: (text, { normalizers }: { normalizers: Step[] }) => normalizers.reduce(normalize, text),
  ...Object.fromEntries(["NFC", "NFD", "NFKC", "NFKD"].map((form) => [form, (text: Aligned) => composed(text, form)])),
  Lowercase: lower,
  StripAccents: (text) => mapped(text, (char) => (isMark(char) ? [] : [char])),
  Strip: stripped,
  Replace: (text, { pattern, content }: { pattern: Pattern; content: string }) => replaced(text, patternOf(pattern), content),
  Prepend: (text, { prepend }: { prepend: string }) => prepended(text, prepend),
  Precompiled: (text, { precompiled_charsmap }: { precompiled_charsmap: string }) => byTable(text, precompiled_charsmap),
  BertNormalizer: asWords,
  ByteLevel: bytesOf,
  Nmt: (text) => mapped(text, (char) => (/[\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]/.test(char) ? [] : [/[\t\n\f\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]/.test(char) ? " " : char])),
};

function lower(text: Aligned): Aligned {
  return mapped(text, (char) => char.toLowerCase());
}

function stripped(text: Aligned, { strip_left, strip_right }: { strip_left: boolean; strip_right: boolean }): Aligned {
  let start = 0, end = text.chars.length;
  const isSpace = (i: number): boolean => /\p{White_Space}/u.test(text.chars[i]!);
  while (strip_left && start < end && isSpace(start)) start++;
  while (strip_right && end > start && isSpace(end - 1)) end--;
  return slice(text, start, end);
}

/** Characters that may join the one before them. */
const JOINS = /[\p{M}\u1160-\u11ff\u3131-\u318e\uff9e-\uffdc]/u;

/** Unicode's forms, of each letter with its marks alone; what a character becomes stands where it stood, unless it joins others. */
function composed(text: Aligned, form: string): Aligned {
  const out: Aligned = { chars: [], from: [], to: [] }, isKnown = (i: number): boolean => !UNKNOWN.test(text.chars[i]!);
  const starts = text.chars.flatMap((char, i) => (i && JOINS.test(char) && isKnown(i) && isKnown(i - 1) ? [] : [i]));
  starts.forEach((start, i) => {
    const end = starts[i + 1] ?? text.chars.length, part = text.chars.slice(start, end);
    const whole = isKnown(start) ? part.join("").normalize(form) : part.join(""), alone = part.map((char) => [...char.normalize(form)]);
    const places = alone.flat().join("") === whole ? alone.flatMap((made, j) => made.map(() => start + j)) : null;
    [...whole].forEach((char, j) => {
      const at = places?.[j] ?? Math.min(start + j, end - 1);
      add(out, char, text.from[at]!, text.to[at]!);
    });
  });
  return out;
}

// --- words (Devlin et al. 2019) ---

const IDEOGRAPH = /[\u4e00-\u9fff\u3400-\u4dbf\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\uf900-\ufaff\u{2f800}-\u{2fa1f}]/u;

interface Words { clean_text: boolean; handle_chinese_chars: boolean; strip_accents: boolean | null; lowercase: boolean }

function asWords(text: Aligned, { clean_text, handle_chinese_chars, strip_accents, lowercase }: Words): Aligned {
  if (clean_text) {
    text = mapped(text, (char) => (/[\t\n\r]/.test(char) ? " " : char === "\ufffd" || isOther(char) ? [] : [/\p{White_Space}/u.test(char) ? " " : char]));
  }
  if (handle_chinese_chars) text = mapped(text, (char) => (IDEOGRAPH.test(char) ? [" ", char, " "] : [char]));
  if (strip_accents ?? lowercase) text = mapped(composed(text, "NFD"), (char) => (isNonspacing(char) ? [] : [char]));
  return lowercase ? lower(text) : text;
}

// --- SentencePiece's table: a trie of bytes (a double array), and the texts that its leaves name ---

interface Table { units: Uint32Array; texts: Uint8Array }

const tables = new Map<string, Table>();

function tableOf(rules: string): Table {
  let table = tables.get(rules);
  if (!table) {
    const bytes = Uint8Array.from(atob(rules), (char) => char.charCodeAt(0)), end = 4 + new DataView(bytes.buffer).getUint32(0, true);
    tables.set(rules, (table = { units: new Uint32Array(bytes.slice(4, end).buffer), texts: bytes.subarray(end) }));
  }
  return table;
}

/** The text of the shortest entry that a text begins with. */
function entry({ units, texts }: Table, text: string): string | null {
  const offset = (unit: number): number => (unit >>> 10) << ((unit & 512) >>> 6);
  let node = offset(units[0]!);
  for (const byte of new TextEncoder().encode(text)) {
    if (byte === 0) break;
    node ^= byte;
    const unit = units[node] ?? 0;
    if ((unit & 0x800000ff) >>> 0 !== byte) return null;
    node ^= offset(unit);
    if ((unit >>> 8) & 1) {
      const start = units[node]! & 0x7fffffff;
      return new TextDecoder().decode(texts.subarray(start, texts.indexOf(0, start)));
    }
  }
  return null;
}

const LONGEST_ENTRY = 6;

/** As the library does it: a short grapheme that begins with an entry is replaced whole, else character by character. */
function byTable(text: Aligned, rules: string): Aligned {
  const table = tableOf(rules), out: Aligned = { chars: [], from: [], to: [] };
  let at = 0;
  const write = (part: string, made: string | null): void => {
    const n = [...part].length, last = at + n - 1;
    [...(made ?? part)].forEach((char, i) => add(out, char, text.from[Math.min(at + i, last)]!, text.to[Math.min(at + i, last)]!));
    at += n;
  };
  for (const { segment } of new Intl.Segmenter().segment(text.chars.join(""))) {
    const whole = new TextEncoder().encode(segment).length < LONGEST_ENTRY ? entry(table, segment) : null;
    if (whole !== null) write(segment, whole);
    else for (const char of segment) write(char, entry(table, char));
  }
  return out;
}

/** A token's content under the same rules, as it is looked for in a text. */
export function normalized(content: string, step: Step | null): string {
  return normalize(aligned(content), step).chars.join("");
}
