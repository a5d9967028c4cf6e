/** What carries an answer: the replies to the question `overview` as heads, curves and lanes, and one sentence of them. */

import { parseAddress } from "../../core/address";
import type { Reply } from "../../core/host";
import type { DecidedPart, OverviewReply, StackName, Token } from "../../core/protocol";
import { listed, partName, percent, short, t, wordOf, type Run, type Spoken } from "../../parts/kit";
import { placeOf, type Curve, type Place } from "../../state/telling";

export { curvesIn, telling, type Curve, type Place } from "../../state/telling";

/** How much of the answer moves without it, 0 to 1, and the probability of the first answer then; NaN: not measured. */
export interface Head extends Place { z: string; moved: number; p: number }
export interface Choice { id: number; word: string; p: number }
/** Words, a region of a picture or a stretch of a sound, which move more of the answer than each head. */
export interface Share { sites: string[]; moved: number; p: number; stack: StackName; tokens: number[] }
/** `instead` gains most without the part, or without the head that decides; `words`: what moves without each, where no head decides. */
export interface Heads { position: number; kind: "word" | "class" | "vector"; answers: Choice[]; heads: Head[]; decided: Head | null; part: Share | null; words: Share[]; instead: Choice | null }

/** A word's stream, or that of several words, a region of a picture or a stretch of a sound together. */
export interface Lane { tokens: number[] }
/** NaN: not measured. */
export interface Grid { rows: number; lanes: number; at(row: number, lane: number): number }
export interface Lanes { lanes: Partial<Record<StackName, Lane[]>>; streams: Partial<Record<StackName, Grid>> }

export function headsIn({ json, tensors }: Reply<OverviewReply>): Heads {
  const moved = tensors.get("moved")!.data, p = tensors.get("p")?.data;
  const heads = (json.at ?? []).map((at, i): Head => ({ ...placeOf(at), moved: moved[i] ?? NaN, p: p?.[i] ?? NaN }));
  const { head = -1, part, words = [], instead = null } = json.decided ?? {}, best = json.answers?.[0];
  return { position: json.position ?? 0, kind: json.kind ?? "word", answers: json.answers ?? [], heads, decided: heads[head] ?? null, part: part ? shareIn(part) : null, words: words.map(shareIn), instead: instead && instead.id !== best?.id ? instead : null };
}

function shareIn({ at: sites, moved, p }: DecidedPart): Share {
  const tokens = sites.flatMap((at) => parseAddress(at).index.map(([, i]) => i));
  return { sites, moved, p: p ?? NaN, stack: sites[0]!.split(".")[0] as StackName, tokens };
}

export function lanesIn({ json, tensors }: Reply<OverviewReply>): Lanes {
  const made: Lanes = { lanes: {}, streams: {} };
  for (const name of ["encoder", "decoder"] as const) {
    const lanes = json.stacks?.[name];
    if (!lanes) continue;
    const { shape: [rows = 0, columns = 1], data } = tensors.get(name)!;
    made.lanes[name] = lanes.map((tokens) => ({ tokens }));
    made.streams[name] = { rows, lanes: columns, at: (row, lane) => data[row * columns + lane] ?? NaN };
  }
  return made;
}

/** Of each word of some tokens its last, which has its name. */
export const lastOf = (tokens: readonly Spoken[], some: readonly number[]): number[] => some.filter((i) => !(tokens[i + 1]?.on && some.includes(i + 1))).sort((one, other) => one - other);

/** The stack whose tokens a head reads. */
export const readBy = ({ stack, part }: Place): StackName => (part === "cross" ? "encoder" : stack);

/** A word that is selected, with the tokens of its lane. */
export interface Selected { stack: StackName; token: number; own: readonly number[] }

/** Whether it reads or is read. */
export const isOf = (one: Curve, { stack, own }: Selected): boolean => (one.stack === stack && own.includes(one.to)) || (readBy(one) === stack && own.includes(one.from));

/** A sign of the start, the end or a setting, which is no word, no place in a picture and no moment. */
export function isMarker(tokens: readonly Token[], i: number): boolean {
  const { text = "", span = null } = tokens[i] ?? {};
  return span === null && text !== "class" && !/^\d/.test(text);
}

/** What a token reads in a head that the answer needs, first what moves it most. */
export function mostRead(curves: readonly Curve[], { z, to, moved }: Curve): Curve[] {
  return curves.filter((one) => one.z === z && one.to === to && one.weight >= 0.1 && one.moved >= SHARE * moved).sort((one, other) => other.moved - one.moved).slice(0, 3);
}

export const isSame = (one: Place, other: Place): boolean => one.stack === other.stack && one.layer === other.layer && one.part === other.part && one.head === other.head;

/** "decoder, block 1, cross-attention, head 0"; in a model of one stack without its name. */
export function nameOf(run: Run, { stack, layer, part, head }: Place, form: "full" | "at" | "of" = "full"): string {
  const { encoder, decoder } = run.plan.config, both = encoder && decoder;
  const names = { stack: t(`overview.${stack}`), n: layer, head, part: partName(part) };
  const kind = both ? (part === "cross" ? "_cross" : "_stack") : "";
  return t(`overview.${form === "full" ? (both ? "head_of" : "head") : form + kind}`, names);
}

/** The number of a word that stands several times, else 0. */
export function nth(tokens: readonly Spoken[], i: number): number {
  const same = tokens.flatMap(({ text, span }, k) => (span && text === tokens[i]!.text && !tokens[k + 1]?.on ? [k] : []));
  return same[1] ? same.indexOf(i) + 1 : 0;
}

/** A word that stands several times, with its number. */
export function numbered(tokens: readonly Spoken[], i: number): string {
  const n = nth(tokens, i);
  return `${quoted(tokens, i)}${n ? ` (${n})` : ""}`;
}

/** "“thin”", "“dull” and “slow”", "both “dog”s". */
export function nameOfShare(tokens: readonly Spoken[], some: readonly number[]): string {
  const all = lastOf(tokens, some), [first = 0] = all;
  return all[1] && all.every((i) => tokens[i]!.text === tokens[first]!.text) ? t(all[2] ? "overview.part_all" : "overview.part_both", { word: quoted(tokens, first) }) : listed(all.map((i) => numbered(tokens, i)));
}

const isGap = (text: string): boolean => /^(<mask>|\[MASK\])$/.test(text);

/** A token in plain letters: the signs of the start and the end in words, and the place where a picture gets its label. */
export function plainOf(tokens: readonly Token[], i: number): string {
  const { text = "", span = null } = tokens[i] ?? {}, isSign = span === null && /^<\/?s>$|^<.*(bos|eos|start|end|text|turn).*>$|^\[(CLS|SEP)\]$/.test(text);
  if (span === null && text === "class") return t("overview.slot");
  if (isGap(text)) return t("overview.gap");
  return isSign ? t(i === 0 ? "overview.start" : "overview.end") : (span === null && /^<\|(.+)\|>$/.exec(text)?.[1]) || wordOf(text).trim() || text;
}

/** The tokens of a stack: the first, where it gets the label, as a picture's; and a word that the model does not know, in the reader's letters. */
export const wordsOf = ({ request, reply, plan }: Run, stack: StackName): Token[] => (reply.tokens[stack] ?? []).map((one, i) => (!i && !one.span && plan.config.head.pool === "first" ? { ...one, text: "class" } : one.span && /^(<unk>|\[UNK\])$/.test(one.text)
  ? { ...one, text: t("overview.unknown", { text: ((stack === "decoder" && plan.config.encoder ? reply.target : request.text) ?? "").slice(...one.span) || one.text }) } : one));

/** In a sentence: words in quotes, a patch by its place. */
export function quoted(tokens: readonly Token[], i: number): string {
  if (!tokens[i]?.span && /^\d+,\d+$/.test(tokens[i]?.text ?? "")) return t("overview.patch");
  if (!tokens[i]?.span && /^\d+\.\d\d s$/.test(tokens[i]?.text ?? "")) return t("overview.moment", { at: tokens[i]!.text });
  const text = plainOf(tokens, i);
  return !tokens[i]?.span || isGap(tokens[i].text) ? text : text === "." ? t("overview.stop") : t("overview.quoted", { text });
}

/** A word or label that the model says. */
export const spelt = (text: string): string => t("overview.quoted", { text: wordOf(text).trim() || text });

/** The same outside of a sentence, where a single letter would be taken for a sign. */
export const shown = (word: string): string => (/^\p{Ll}$/u.test(word) ? spelt(word) : word);

/** The labels between which a classifier chooses, of many the first two and the last: " “yes” or “no”". */
export function choicesOf(labels: readonly string[] | null): string {
  const all = labels?.map(spelt) ?? [];
  return all[1] ? ` ${listed(all[3] ? [all[0]!, all[1], "…", all.at(-1)!] : all, "disjunction")}` : "";
}

/** A vector's answer: how alike it is to that of a text, or to itself. */
export const likeness = (text: string): string => (text ? t("overview.likeness", { text: short(text, 36).replace(/ \S*…$/, " …") }) : t("overview.likeness_own"));

/** From this share of the answer on, a head or a curve decides something. */
export const DECIDES = 0.02;

/** A curve with this share of its head's effect, and of the attention, is what the head is about. */
const SHARE = 0.25, MOST = 0.5;

/** From this share on an answer leads, or from half of what the first had. */
const LEADS = 0.25;
export const leads = (p: number, was: number): boolean => p >= Math.min(LEADS, was / 2);

/** Whether what is read, most of the attention or of what moves, says what the head does. */
export const tells = (reads: readonly Curve[], { moved }: Head): boolean => !!reads[0] && reads[0].moved >= Math.max(DECIDES, (reads.reduce((sum, { weight }) => sum + weight, 0) < MOST ? MOST : SHARE) * moved);

/** How far the first answer goes without a head, in points. */
export const shift = ({ p, moved }: Head, { answers: [best] }: Heads): number => (best && !isNaN(p) ? p - best.p : moved);

/** The head of a block that matters most. */
export function strongest(heads: Heads, { stack, layer }: { stack: StackName; layer: number }): Head | null {
  const by = (one: Head): number => (one.stack === stack && one.layer === layer ? Math.abs(shift(one, heads)) : NaN);
  return heads.heads.reduce<Head | null>((best, one) => (by(one) >= (best ? by(best) : 0) ? one : best), null);
}

/** A sentence with places for names. */
export interface Sentence { text: string; names: Record<string, string> }

/** What is said of an answer as it is and otherwise, and what gains most then. */
export interface Outcome { word: string; was: number; now: number; other: { word: string; p: number } | null }

/** What a cause does to the answer, which comes first. */
export function headline(cause: string, { word, was, now, other }: Outcome, names: Record<string, string>, amount = percent, form = "off"): Sentence {
  const verb = t(now > was ? "overview.rises" : "overview.falls"), told = { ...names, verb, word, before: amount(was), after: amount(now) };
  if (!other || other.p < DECIDES) return { text: t(`overview.${form}`, { cause }), names: told };
  return { text: t(`overview.${form}_${!leads(Math.max(other.p, now), was) ? "none" : other.p > now + DECIDES ? "over" : "now"}`, { cause }), names: { ...told, other: (amount === percent ? spelt : likeness)(other.word), now: amount(other.p) } };
}
