/** Answers from recorded runs, and from runs without one head, of a model that is too large for the file. */

import { indexed, parseAddress } from "../../core/address";
import type { Answered, Asked, Tensor } from "../../core/host";
import type { About, Edit, Fact, GenerateReply, LensReply, Plan, RunReply, RunRequest } from "../../core/protocol";
import { floats, row, size, toFloats, type Floats } from "../../core/tensor";
import { derive } from "../../engine/derive";
import { edited } from "../../engine/edits";
import { NO_PIXELS, numbersOf } from "../../engine/forward";
import { axesOf } from "../../engine/taps";
import { t } from "../../i18n/index.svelte";
import { changeOf, heldInput, heldOverview, heldRun } from "./ask";
import type { Answers, FileDocument, RecordedRun, WithoutHeads } from "./document";
import { opened, withShapes } from "./live";
import type { Parts } from "./parts";

/** A recorded run, and the edit that was made of it, if any. */
interface Found { held: RecordedRun; edit: Edit | null }

/** The tokens of the text that a file holds. */
const LENGTH = 24;

/** Thrown for a value that the file does not hold and that cannot be derived from what it holds. */
class Absent extends Error {}

export class Recorded implements Answers {
  readonly #about: About;
  #made = new Map<string, Promise<Floats>>();

  constructor(private readonly document: FileDocument, private readonly runs: RecordedRun[], private readonly parts: Parts) {
    this.#about = document.about;
  }

  async run({ run }: Asked<"run">): Promise<Answered<"run">> {
    const { held, edit } = this.#find(run), reply = await this.#reply(held);
    return edit ? this.#without(held, reply, edit) : reply;
  }

  /** Returns the addresses that exist. Throws an Error if none does. */
  async values({ run, at }: Asked<"values">): Promise<Answered<"values">> {
    const found = this.#find(run), tensors = new Map<string, Tensor>();
    for (const address of at) {
      const { path, index } = parseAddress(address);
      try {
        const value = await this.#value(found, path), axes = axesOf(path, value.shape.length);
        if (axes) tensors.set(address, opened(indexed(value, axes, index, address)));
      } catch (error) {
        if (!(error instanceof Absent)) throw error;
      }
    }
    if (tensors.size === 0) throw new Error(this.#say("file.value", { at: at[0] ?? "" }));
    return withShapes(tensors);
  }

  effects({ run, at, position }: Asked<"effects">): Answered<"effects"> {
    const { held, edit } = this.#find(run), known = edit || position !== undefined ? {} : (held.effects ?? {});
    const missing = at.find((site) => !(site in known));
    if (missing !== undefined) throw new Error(this.#say("file.value", { at: missing }));
    return { json: { effects: Object.fromEntries(at.map((site) => [site, known[site]!])) }, tensors: new Map() };
  }

  statistics({ run, at }: Asked<"statistics">): Answered<"statistics"> {
    const { held, edit } = this.#find(run);
    if (edit || at.length) throw new Error(this.#say("file.value", { at: at[0] ?? "head" }));
    return { json: { heads: held.heads }, tensors: new Map() };
  }

  async lens({ run, k }: Asked<"lens">): Promise<Answered<"lens">> {
    const { held, edit } = this.#find(run), name = held.parts.lens;
    if (edit || !name) throw new Error(this.#say("file.change"));
    const { json, tensors } = await this.parts.read<LensReply>(name), cut = new Map(tensors);
    for (const of of ["ids", "probabilities"]) cut.set(of, firstOf(tensors.get(of)!, k));
    const left = new Set(Array.from(cut.get("ids")!.data, String));
    const words = Object.entries(json.words).filter(([id]) => left.has(id));
    return { json: { ...json, words: Object.fromEntries(words) }, tensors: cut };
  }

  /** At the position that decides most. */
  async overview(asked: Asked<"overview">): Promise<Answered<"overview">> {
    const { held, edit } = this.#find(asked.run), found = edit ? null : await heldOverview(held, asked, this.parts);
    if (!found) throw new Error(this.#say("file.held", { texts: `“${held.run.text}”` }));
    return found;
  }

  check({ run }: Asked<"check">): Answered<"check"> {
    const { held, edit } = this.#find(run);
    if (edit) throw new Error(this.#say("file.change"));
    return { json: { check: held.check }, tensors: new Map() };
  }

  generate({ run, settings }: Asked<"generate">): Answered<"generate"> {
    const { held, edit } = this.#find(run), isHeld = settings.max_new_tokens === LENGTH && settings.beams === 1 && settings.temperature === 0;
    if (edit || !isHeld) throw new Error(this.#say("file.written", { n: String(LENGTH) }));
    return { json: held.written as GenerateReply, tensors: new Map() };
  }

  /** Of the likeliest tokens of a position. */
  async attribution({ run, position, logit, minus }: Asked<"attribution">): Promise<Answered<"attribution">> {
    const { held, edit } = this.#find(run), name = held.parts.attribution;
    if (edit || !name) throw new Error(this.#say("file.change"));
    const { json: { parts }, tensors } = await this.parts.read<{ parts: string[] }>(name);
    const ids = tensors.get("ids")!, shares = tensors.get("shares")!, [n, k] = ids.shape as [number, number];
    const column = (id: number): number => {
      const found = Array.from(row(ids, position < 0 ? position + n : position)).indexOf(id);
      if (found < 0) throw new Error(this.#say("file.logit", { n: String(k) }));
      return found;
    };
    const own = column(logit), other = minus === undefined ? null : column(minus), at = (position < 0 ? position + n : position) * k;
    const each = parts.map((part, i): [string, number] =>
      [part, shares.data[i * n * k + at + own]! - (other === null ? 0 : shares.data[i * n * k + at + other]!)]);
    return { json: { shares: Object.fromEntries(each), logit: each.reduce((sum, [, share]) => sum + share, 0) }, tensors: new Map() };
  }

  // --- which run ---

  #find(request: RunRequest): Found {
    const { scale, positions } = changeOf(request, this.#about), exact = heldRun(this.runs, request, this.#about);
    if (exact) return { held: exact, edit: null };
    const plain = heldInput(this.runs.filter((one) => one.parts.without), request, this.#about);
    const [edit] = request.edits;
    if (plain && scale && positions === null && request.edits.length === 1 && edit?.do === "zero" && edit.at in (plain.effects ?? {})) {
      return { held: plain, edit };
    }
    if (heldInput(this.runs, request, this.#about)) throw new Error(this.#say("file.change"));
    const texts = [...new Set(this.runs.map(({ run }) => `“${run.text}”`))].join(", ");
    throw new Error(this.#say("file.text", { texts }));
  }

  #say(key: string, values: Record<string, string> = {}): string {
    return t(key, { ...values, command: this.document.command });
  }

  #reply(held: RecordedRun): Promise<Answered<"run">> {
    return this.parts.read<RunReply>(held.parts.run!);
  }

  // --- without a head ---

  /** The final answer without the head, and all values before the edit. */
  async #without(held: RecordedRun, { json, tensors }: Answered<"run">, edit: Edit): Promise<Answered<"run">> {
    const said = await this.parts.read<WithoutHeads>(held.parts.without!), i = said.json.sites.indexOf(edit.at);
    const after = this.#after(parseAddress(edit.at).path), path = parseAddress(edit.at).path;
    const isBefore = (address: string): boolean => !after.has(address.replace(/\.(u8|max)$/, ""));
    const facts: [string, Fact][] = Object.entries(json.facts).filter(([at]) => at === path || isBefore(at));
    const kept = new Map([...tensors].filter(([name]) => !name.startsWith("output.") && isBefore(name)));
    for (const [name, tensor] of said.tensors) kept.set(`output.${name}`, { shape: tensor.shape.slice(1), data: row(tensor, i) });
    const values = kept.get("output.values");
    // Log probabilities: as logits, they add up to 1 already.
    if (values) kept.set("output.lse", floats(values.shape.slice(0, -1)));
    return {
      json: {
        ...json, words: said.json.words, notes: [...json.notes, this.#say("file.without")],
        facts: Object.fromEntries(facts.map(([at, fact]) => [at, at === path ? { ...fact, by_hand: true } : fact])),
      },
      tensors: kept,
    };
  }

  /** The paths that an edit changes, its own included. */
  #after(path: string): Set<string> {
    const after = new Set([path]);
    for (const op of this.#about.plan.ops) if ((op.inputs ?? []).some((input) => after.has(input))) after.add(op.out);
    return after;
  }

  // --- values ---

  /** A value that the file holds, or that follows from those. */
  async #value({ held, edit }: Found, path: string): Promise<Floats> {
    const at = edit && parseAddress(edit.at);
    if (!edit || !at || !this.#after(at.path).has(path)) return this.#whole(held, path);
    if (at.path !== path) throw new Absent(path);
    return edited(await this.#whole(held, path), edit, at);
  }

  #whole(held: RecordedRun, path: string): Promise<Floats> {
    const key = `${this.runs.indexOf(held)} ${path}`;
    let found = this.#made.get(key);
    if (!found) this.#made.set(key, (found = this.#make(held, path)));
    return found;
  }

  async #make(held: RecordedRun, path: string): Promise<Floats> {
    const part = held.values[path];
    if (part) return toFloats((await this.parts.read(held.parts[part]!)).tensors.get(path)!);
    const { json } = await this.#reply(held), plan: Plan = json.plan ?? this.#about.plan;
    const op = plan.ops.find((one) => one.out === path);
    if (!op) throw new Absent(path);
    const weights = async (names: string[]): Promise<ReadonlyMap<string, Tensor>> => {
      const known = held.parts.parameters ? (await this.parts.read(held.parts.parameters)).tensors : new Map<string, Tensor>();
      if (names.some((name) => !known.has(name))) throw new Absent(path);
      return known;
    };
    const numbers = numbersOf(plan.config, json.tokens, NO_PIXELS), value = (at: string): Promise<Floats> => this.#whole(held, at);
    return toFloats(await derive(op, { path, index: [] }, { plan, numbers, value, weights }));
  }
}

/** The first k along the last axis. */
function firstOf({ shape, data }: Tensor, k: number): Tensor {
  const n = shape.at(-1) ?? 1, kept = Math.min(k, n), rows = size(shape.slice(0, -1));
  if (kept === n) return { shape, data };
  const made = data.slice(0, rows * kept);
  for (let i = 0; i < rows; i++) made.set(data.subarray(i * n, i * n + kept), i * kept);
  return { shape: [...shape.slice(0, -1), kept], data: made };
}
