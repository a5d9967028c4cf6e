/** What a stop of a walk is on a model and an input: its place, its names and its numbers. */

import { headWidth } from "../core/config";
import type { Tensor } from "../core/host";
import type { About, Edit, Encoding, RunRequest, StackName, Token } from "../core/protocol";
import { length, softmax } from "../core/vectors";
import type { Reading, Stop, StopPlace, Walk, When } from "../core/walk";
import { num, percent } from "../draw/format";
import { isOpen } from "../engine/functions";
import { kindOf } from "../engine/ops";
import { sent } from "../i18n/index.svelte";
import { answerOf } from "./answer.svelte";
import { attentionAt, limit, NOTHING, plainPage, requestA, requestB, type Page, type Reads } from "./page";
import { fromFragment } from "./permalink";
import { hasPlace, placeOf } from "./places";
import type { Run } from "./run";

/** The walks that every page has: the files of src/walks/, which come with the texts. */
export function walks(): Walk[] {
  return JSON.parse(sent("walk.all") ?? "[]") as Walk[];
}

/** The part of a page's state that a stop sets. */
export type Placement = Pick<Page,
  "view" | "step" | "stack" | "layer" | "part" | "head" | "query" | "key" | "dim" | "position" | "side" | "reads" | "other" | "edits" | "change" | "temperature">
  & Partial<Pick<Page, (typeof FREE)[number]>>;

/** What a stop may set, and the reader changes without leaving it. */
export const FREE = ["form", "moment", "heads"] as const;

/** A stop's place as fields: a link sets all of them. */
export function placeIn({ place }: Stop): Pick<StopPlace, "view" | "step" | "edits" | "change"> {
  return typeof place === "string" ? fromFragment(place, NOTHING) ?? plainPage(NOTHING) : place;
}

// --- which stops -----------------------------------------------------------------------------------------------------

/** The stops that this model has. */
export function stopsOf(walk: Walk, about: About): Stop[] {
  return walk.stops.filter((stop) => {
    if (typeof stop.place === "string") return hasPlace(about, placeOf(placeIn(stop).view as Page["view"]));
    const stack = stackOf(stop.place, about);
    return about.plan.config[stack] && (!stop.when || holds(stop.when, about, stack));
  });
}

function holds(when: When, about: About, stack: StackName): boolean {
  const { config, masks } = about.plan, own = config[stack]!;
  const one = (list: string[] | undefined, value: string): boolean => !list || list.includes(value);
  const both = (wanted: boolean | undefined, is: boolean): boolean => wanted === undefined || wanted === is;
  // Some models have two encodings: one that is added to the embedding, and one of scores.
  const encoding: Encoding & { added?: Encoding } = own.positions;
  const positions = encoding.added?.kind ?? encoding.kind;
  return one(when.kinds, about.kind) && one(when.positions, positions) && one(when.heads, config.head.kind)
    && one(when.norms, own.norm_place) && both(when.tokenizer, about.has_tokenizer) && both(when.causal, masks[`${stack}.attn`]?.causal ?? false)
    && both(when.scaled, own.attn_scale === null && !own.soft_cap) && both(when.deep, own.n_layers > 1)
    && both(when.biased, about.plan.ops.some((op) => op.out.startsWith(`${stack}.`) && kindOf(op).pairwise)) && both(when.parallel, Boolean(own.parallel))
    && both(when.normed, own.norm_place !== "post" && own.first_norm !== false) && both(when.many, own.n_heads > 1);
}

function stackOf({ stack = "first" }: StopPlace, { plan: { config } }: About): StackName {
  if (stack === "first") return config.encoder ? "encoder" : "decoder";
  return stack === "last" ? (config.decoder ? "decoder" : "encoder") : stack;
}

/** What a page can read in place of a text that its model could not: what it read before, or numbers for a model without
 *  a tokenizer; null where nothing is known. */
export function readableBy(about: About, before: RunRequest | undefined): Reads | null {
  if (before) return { text: before.text, target: before.target, image: before.image ?? null, step: before.step ?? null };
  if (about.has_tokenizer) return null;
  return { text: FIRST_NUMBERS.filter((i) => i <= lastId(about)).join(" "), target: null, image: null };
}

const FIRST_NUMBERS = [0, 1, 2, 3];

/** The largest number of a token. */
export function lastId({ plan: { config } }: About): number {
  return ((config.encoder ?? config.decoder)!.input.vocab_size ?? 1) - 1;
}

// --- where -----------------------------------------------------------------------------------------------------------

/** The state that a stop sets on a page that reads `reads`; `run` is A's pass over it. */
export function placementOf(stop: Stop, walk: Walk, about: About, run: Run, reads: Reads): Placement {
  if (typeof stop.place === "string") return linked(stop.place, about, run, reads);
  const { place } = stop, stack = stackOf(place, about), config = about.plan.config[stack]!;
  const own: Reads = walk.text === undefined || walk.text === reads.text ? reads : { text: walk.text, target: null, image: null };
  const page = plainPage(own), tokens = tokensIn(run, stack);
  const layer = fromEnd(place.layer ?? 0, config.n_layers), part = place.part ?? "attn";
  const query = positionOf(place.query ?? "asked", stack, about, tokens);
  const most = mostOf(run, `${stack}.blocks.${layer}.${part}`, place, query, part === "cross" ? tokensIn(run, "encoder") : tokens);
  Object.assign(page, { view: place.view, step: place.step ?? page.step, stack, layer, part, query, ...most });
  page.dim = place.dim ?? null;
  page.other = place.other === undefined ? null : { text: place.other, target: null };
  page.change = place.change ?? {};
  const isLast = stack === (about.plan.config.decoder ? "decoder" : "encoder");
  page.position = isLast ? query : null;
  page.edits = filledEdits(place.edits ?? [], addresses(page, about));
  page.side = requestB(page) ? "b" : "a";
  const { form: _, heads: __, moment: ___, ...placement } = placementIn(page);
  return placement;
}

/** The state of a link; `run` limits it if it read the same. */
function linked(link: string, about: About, run: Run, reads: Reads): Placement {
  const start = reads.step == null ? reads : { ...reads, step: null };
  const page = fromFragment(link, start) ?? plainPage(start), isThere = JSON.stringify(requestA(page)) === JSON.stringify(run.request);
  limit(page, about, isThere ? run : null);
  return placementIn(page);
}

function placementIn({ walk: _, stop: __, mode: ___, present: ____, ...placement }: Page): Placement {
  return placement;
}

function tokensIn(run: Run, stack: StackName): Token[] {
  return run.reply.tokens[stack] ?? [];
}

function fromEnd(i: number, n: number): number {
  return Math.max(0, Math.min(i < 0 ? n + i : i, n - 1));
}

function positionOf(query: NonNullable<StopPlace["query"]>, stack: StackName, about: About, tokens: Token[]): number {
  const last = Math.max(0, tokens.length - 1);
  if (typeof query === "number") return fromEnd(query, tokens.length);
  const word = Math.max(0, tokens.map((token) => token.span !== null).lastIndexOf(true));
  if (query === "word") return word;
  const { config } = about.plan;
  if (stack === "decoder") return config.encoder ? Math.max(0, last - 1) : last;
  if (config.decoder) return word;
  // A classifier reads one position; a model that fills gaps is asked at a gap.
  if (config.head.kind === "classification") return 0;
  const gap = config.head.kind === "language" ? tokens.findIndex((token) => /^[[<](unk|mask)[\]>]$/i.test(token.text)) : -1;
  return gap >= 0 ? gap : word;
}

/** The head and the key of a stop. "most" prefers another word than the query, and one that stands for text. */
function mostOf(run: Run, at: string, place: StopPlace, query: number, keys: Token[]): Pick<Page, "head" | "key"> {
  const found = run.heads(`${at}.weights`);
  const best = (heads: number[], allowed: (key: number) => boolean): { head: number; key: number; share: number } =>
    heads.reduce((most, head) => {
      const { pixels, max, cols } = found[head] ?? { pixels: [], max: [], cols: 0 };
      for (let key = 0; key < cols; key++) {
        const share = (pixels[query * cols + key] ?? 0) * (max[query] ?? 0);
        if (share > most.share && allowed(key)) most = { head, key, share };
      }
      return most;
    }, { head: heads[0] ?? 0, key: 0, share: 0 });
  const isWord = (key: number): boolean => keys[key]?.span !== null && (place.part === "cross" || (key !== query && key > 0));
  const heads = place.head === "most" ? found.map((_, h) => h) : [place.head ?? 0];
  const word = best(heads, isWord), any = best(heads, () => true), head = (word.share > 0 ? word : any).head;
  if (typeof place.key === "number") return { head, key: place.key };
  return { head, key: place.key === "largest" || word.share === 0 ? best([head], () => true).key : word.key };
}

// --- names -----------------------------------------------------------------------------------------------------------

/** What the addresses of a stop may name. */
function addresses(page: Placement, about: About): Record<string, string> {
  const pools = about.plan.config.head.kind === "classification";
  const stack = about.plan.config[page.stack]!;
  return {
    stack: page.stack, block: `${page.stack}.blocks.${page.layer}`, at: attentionAt(page as Page),
    layer: String(page.layer), end: String(stack.n_layers - 1), head: String(page.head), t: String(page.query), s: String(page.key),
    // Heads of a group share their keys and values.
    kv: String(Math.floor(page.head / (stack.n_heads / (stack.n_kv_heads ?? stack.n_heads)))),
    logits: pools ? "head.logits" : `head.logits[t=${page.position ?? 0}]`,
  };
}

/** What the sentences of a stop may name, without its numbers. `of` makes a token's text fit to be shown. */
export function namesOf(placement: Placement, about: About, run: Run, of: (text: string) => string): Record<string, string> {
  const { stack, part, layer, query, key, position } = placement, { plan } = about;
  const config = plan.config[stack]!, tokens = tokensIn(run, stack), keys = part === "cross" ? tokensIn(run, "encoder") : tokens;
  const width = headWidth(config), mask = plan.masks[run.op(`${attentionAt(placement as Page)}.masked`)?.how ?? ""];
  const likeliest = answerOf(run, position ?? 0, about.labels)?.top[0];
  const vocab = config.input.vocab_size;
  return {
    ...addresses(placement, about),
    text: clipped(run.request.text), target: clipped(run.reply.target ?? ""), n: String(tokens.length),
    query: of(tokens[query]?.text ?? ""), key: of(keys[key]?.text ?? ""), id: String(tokens[query]?.id ?? 0),
    last_id: String((vocab ?? 1) - 1), patch: String(config.input.patch_size ?? 0),
    d_model: String(config.d_model), d_ff: String(config.d_ff), d_head: String(width), root: num(Math.sqrt(width)),
    factor: num(config.attn_scale ?? 1 / Math.sqrt(width)),
    n_heads: String(config.n_heads), n_layers: String(config.n_layers), layer: String(layer),
    open: String(mask ? keys.filter((_, s) => isOpen(mask, query, s)).length : keys.length), n_keys: String(keys.length),
    word: of(likeliest?.text ?? ""),
  };
}

function clipped(text: string): string {
  const characters = [...text];
  return characters.length > 60 ? `${characters.slice(0, 59).join("")}…` : text;
}

/** A template with its names filled in; an unknown name stays. */
export function filled(template: string, names: Readonly<Record<string, string>>): string {
  return template.replace(/\{(\w+)\}/g, (whole, name: string) => Object.hasOwn(names, name) ? names[name]! : whole);
}

function filledEdits(edits: Edit[], names: Record<string, string>): Edit[] {
  return edits.map((edit) => ({ ...edit, at: filled(edit.at, names) }));
}

/** A piece of a sentence: words, or what the model gave for a name. */
export type Piece = string | { name: string; text: string };

export function piecesOf(sentence: string, names: Readonly<Record<string, string>>): Piece[] {
  return sentence.split(/(\{\w+\})/).filter(Boolean).map((part) => {
    const name = /^\{(\w+)\}$/.exec(part)?.[1];
    return name !== undefined && Object.hasOwn(names, name) ? { name, text: names[name]! } : part;
  });
}

// --- numbers ---------------------------------------------------------------------------------------------------------

/** The forward pass that a stop shows. */
export function requestOf(placement: Placement): RunRequest {
  const page = { ...plainPage(placement.reads), ...placement };
  return requestB(page) ?? requestA(page);
}

export interface Read { at: string; take?: Reading["take"]; text: string; value: number | null }

/** Finds a forward pass. */
export type Passes = (request: RunRequest) => Promise<Run>;

/** The value of a reading; null where the host does not have it. */
export async function valueOf(reading: Reading, placement: Placement, about: About, passes: Passes): Promise<Read> {
  const names = addresses(placement, about), at = filled(reading.at, names);
  const plain = requestA({ ...plainPage(placement.reads), ...placement });
  try {
    const run = await passes(reading.edits ? { ...plain, edits: filledEdits(reading.edits, names) } : requestOf(placement));
    const tensor = await run.value(at);
    const likeliest = async (): Promise<number> => answerOf(await passes(plain), placement.position ?? 0, about.labels)?.top[0]?.id ?? 0;
    const value = reading.take === "chance" ? softmax(tensor.data)[await likeliest()]! : taken(tensor, reading.take);
    return { at, take: reading.take, value, text: reading.as === "percent" ? percent(value) : num(value, reading.digits ?? 2) };
  } catch {
    return { at, value: null, text: "–" };
  }
}

function taken({ data }: Tensor, take: Reading["take"]): number {
  const values = Array.from(data), sum = (of: (x: number) => number): number => values.reduce((all, x) => all + of(x), 0);
  if (take === "length") return length(data);
  if (take === "sum") return sum((x) => x);
  if (take === "most") return values.reduce((most, x) => Math.max(most, x), -Infinity);
  if (take === "mean") return sum((x) => x) / data.length;
  if (take === "active") return sum((x) => (x > 0 ? 1 : 0)) / data.length;
  return data[0] ?? NaN;
}

const PLACE = ["view", "step", "layer", "part", "head", "query", "key", "dim", "position", "other", "edits", "change"] as const;

/** Whether a page looks nowhere in particular, as that of a link that names a stop and no place. */
export function isBare(page: Page): boolean {
  const plain = plainPage(page.reads);
  return PLACE.every((name) => JSON.stringify(page[name]) === JSON.stringify(plain[name]));
}
