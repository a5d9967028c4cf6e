/** The reader's way along a walk: which stop, where it looks, and what it says. */

import { tick, untrack } from "svelte";
import type { Tensor } from "../core/host";
import type { Question, Reading, Right, Stop, Walk } from "../core/walk";
import { t } from "../i18n/index.svelte";
import { answerOf } from "./answer.svelte";
import { oneOfEach } from "./each";
import type { Explorer } from "./explorer.svelte";
import { plainPage, requestA, type Page, type Reads } from "./page";
import { STEPS, type PlaceName, type Step } from "./places";
import type { Run } from "./run";
import { EMPTY, named } from "./own";
import {
  filled, FREE, isBare, namesOf, piecesOf, placeIn, placementOf, readableBy, requestOf, stopsOf, valueOf, walks, type Passes, type Piece, type Placement, type Read,
} from "./walk";

/** A sentence with its numbers, by their names. */
export interface Told { stop: Stop; pieces: Piece[]; reads: Record<string, Read> }

/** A question with the texts of its choices. */
export interface Asked { stop: Stop; ask: string; choices: string[]; right: number; because: Piece[] }

const MOST_CHOICES = 5;

export class Walking {
  /** The one that was recorded first, then those that came with the model. */
  walks: Walk[] = $derived.by(() => {
    const { about, own } = this.app, given = [...(about.walks ?? []), ...walks()].filter(({ name }) => name !== own?.name);
    return [...(own ? [own] : []), ...given].filter((walk) => stopsOf(walk, about).length > 0);
  });
  /** Whether the recorded walk is being edited. */
  editing = $state(false);
  /** The recorded walk as it was before each change. */
  #past = $state.raw<(Walk | null)[]>([]);
  #reached = $state<Record<string, number>>({});
  /** The choice made at each stop, by walk and stop. */
  #chosen = $state<Record<string, number>>({});
  /** What the model read when the page last followed the walk. */
  #input: string | null = null;

  /** Whether the page opened in Learn. A reader who enters it later keeps the place until the first stop is chosen. */
  #isLinked: boolean;

  constructor(readonly app: Explorer) {
    this.#isLinked = this.isOn;
    this.editing = app.own !== null && !this.isOn;
  }

  get isOn(): boolean {
    return this.app.page.mode === "learn";
  }

  walk: Walk = $derived.by(() => this.walks.find(({ name }) => name === this.app.page.walk) ?? this.walks[0]!);
  stops: Stop[] = $derived.by(() => stopsOf(this.walk, this.app.about));
  index: number = $derived.by(() => {
    const { stop } = this.app.page, at = typeof stop === "string" ? this.stops.findIndex(({ name }) => name === stop) : stop;
    return Math.max(0, Math.min(at, this.stops.length - 1));
  });
  stop: Stop = $derived.by(() => this.stops[this.index]!);
  /** null until the pass over what the page reads is there. */
  placement: Placement | null = $derived.by(() => {
    const { app: { a, about, page }, stop, walk } = this, reads = $state.snapshot(page.reads);
    const isOwn = !this.fixed, isThere = JSON.stringify(a?.request) === JSON.stringify({ ...reads, edits: [] });
    return a && (isThere || !isOwn) ? placementOf(stop, walk, about, a, reads) : null;
  });

  /** Whether the page looks elsewhere than the stop does. */
  away: boolean = $derived.by(() => {
    const { placement, app } = this;
    if (!placement) return false;
    return Object.entries(placement).some(([name, value]) => !FREE.includes(name as never) && JSON.stringify(app.page[name as keyof Placement]) !== JSON.stringify(value));
  });

  /** Whether the stop has a text of its own. */
  get fixed(): boolean {
    return this.walk.text !== undefined || typeof this.stop.place === "string";
  }

  /** Whether the model could not read what the page holds, such as words without a tokenizer. */
  unread: boolean = $derived.by(() => this.app.error !== null && this.placement === null);

  /** What the page can read instead. */
  readable: Reads | null = $derived.by(() => readableBy(this.app.about, this.app.a?.request));

  get reached(): number {
    return Math.max(this.#reached[this.walk.name] ?? 0, this.index);
  }

  // --- going ---

  /** Opens a walk at its first stop. */
  async enter(walk: string): Promise<void> {
    this.app.go({ mode: "learn", walk, stop: 0 });
    await this.show();
  }

  leave(): void {
    this.app.go({ mode: "explore" });
  }

  async go(index: number): Promise<void> {
    const { name } = this.walk, next = Math.max(0, Math.min(index, this.stops.length - 1));
    this.#reached[name] = Math.max(this.reached, next);
    this.app.go({ stop: next });
    await this.show();
  }

  /** Moves the page to where the stop looks. */
  async show(): Promise<void> {
    const { placement, app } = this;
    if (!placement) return;
    const computed = ["reads", "other", "edits", "change"] as const;
    if (computed.some((name) => JSON.stringify(placement[name]) !== JSON.stringify(app.page[name]))) {
      await app.act(placement);
      if (app.refused) return;
    }
    // On another text than before, the stop's place may have other limits.
    if (this.placement) app.go(this.placement);
  }

  // --- recording ---

  /** Opens the recorded walk, or an empty one, in its editor. */
  edit(): void {
    this.editing = true;
    this.app.own ??= EMPTY;
    this.leave();
  }

  /** Keeps the walk as it is now; null undoes the last change. */
  record(walk: Walk | null): void {
    const { app } = this;
    if (walk) this.#past = [...this.#past, app.own];
    app.own = walk ? named(walk) : this.#past.at(-1) ?? null;
    if (!walk) this.#past = this.#past.slice(0, -1);
    app.onpage?.(app.link);
  }

  get canUndo(): boolean {
    return this.#past.length > 0;
  }

  /** Walks along what was recorded; leaving it leads back to the editor. */
  async play(): Promise<void> {
    const { own } = this.app;
    if (!own) return;
    this.forget();
    this.#reached[own.name] = 0;
    this.app.go({ mode: "learn", walk: own.name, stop: 0 });
    await this.show();
  }

  /** Reads what the model can read, and goes on at the stop. */
  async read(reads: Reads): Promise<void> {
    await this.app.act({ reads });
    await this.show();
  }

  /** Whether the walk has come to a place, or to a step of it; outside Learn everything is open. */
  introduced(view: PlaceName, step?: Step): boolean {
    if (!this.isOn) return true;
    const seen = this.stops.slice(0, this.reached + 1).map(placeIn).filter((place) => place.view === view);
    if (step === undefined) return seen.length > 0;
    return seen.some((place) => STEPS.indexOf((place.step ?? "softmax") as Step) >= STEPS.indexOf(step));
  }

  /** Whether a stop so far has changed something in the model. */
  get changes(): boolean {
    return !this.isOn || this.stops.slice(0, this.reached + 1).map(placeIn).some(({ edits, change }) => edits?.length || (change && Object.keys(change).length > 0));
  }

  /** Call it in a component that is there while Learn is on: shows the stop of a link that names no place, and shows a stop
   *  again on a new text. */
  follow(): void {
    $effect(() => {
      const request = this.app.a?.request;
      if (!request) {
        if (this.app.error) this.#input = ""; // The next text is a new one.
        return;
      }
      const input = JSON.stringify([request.text, request.target, request.image ?? null, request.step ?? null]);
      untrack(() => {
        const isNew = this.#input !== null && input !== this.#input && !this.fixed;
        if (isNew) this.forget();
        // After the effect of the page, which writes its address.
        if (isNew || (this.#input === null && this.#isLinked && isBare(this.app.page))) void tick().then(() => this.show());
        this.#input = input;
      });
    });
  }

  // --- saying ---

  /** The sentence of the stop with its numbers, from the model. */
  async told(of: (text: string) => string): Promise<Told | null> {
    const { stop, placement, app: { about } } = this;
    if (!placement) return null;
    const reads = await this.#reads(stop.numbers ?? {}, placement);
    const names = namesOf(placement, about, await this.#passes(requestA(pageOf(placement))), of);
    return { stop, reads, pieces: piecesOf(t(stop.say), { ...names, ...textsOf(reads) }) };
  }

  /** The question of the stop, if it has one. */
  async asked(of: (text: string) => string): Promise<Asked | null> {
    const { stop, stop: { question }, placement, app: { about } } = this;
    if (!placement || !question) return null;
    const plain = await this.#passes(requestA(pageOf(placement)));
    const names = namesOf(placement, about, plain, of);
    const reads = await this.#reads({ ...stop.numbers, ...question.numbers }, placement);
    const { choices, right } = await this.#choices(question, placement, plain, names, of);
    const said = { ...names, ...textsOf(reads), right: choices[right] ?? "" };
    return { stop, choices, right, ask: filled(t(question.ask), said), because: piecesOf(t(question.because), said) };
  }

  /** The value at an address of the run that the stop shows; null without an address. */
  values(at: string | undefined): Promise<Tensor> | null {
    const { placement } = this;
    return at !== undefined && placement ? this.#passes(requestOf(placement)).then((run) => run.value(at)) : null;
  }

  get choice(): number | null {
    return this.#chosen[`${this.walk.name} ${this.stop.name}`] ?? null;
  }

  choose(choice: number): void {
    this.#chosen[`${this.walk.name} ${this.stop.name}`] = choice;
  }

  /** Forgets what was chosen, as for another text. */
  forget(): void {
    this.#chosen = {};
  }

  #passes: Passes = (request) => untrack(() => this.app.runOf(request));

  async #reads(numbers: Record<string, Reading>, placement: Placement): Promise<Record<string, Read>> {
    const found = Object.entries(numbers).map(async ([name, reading]) => [name, await valueOf(reading, placement, this.app.about, this.#passes)] as const);
    return Object.fromEntries(await Promise.all(found));
  }

  async #choices(
    { choices, right }: Question, placement: Placement, run: Run, names: Record<string, string>,
    of: (text: string) => string,
  ): Promise<{ choices: string[]; right: number }> {
    if (choices === "words") return words(run, placement, this.app.about.labels, of);
    if (choices === "keys" && typeof right === "object" && "largest" in right) {
      const at = filled(right.largest, names), shares = (await run.value(at)).data;
      const keys = run.reply.tokens[at.includes(".cross.") ? "encoder" : placement.stack] ?? [];
      return largestOf(shares, keys.map((token, i) => `${of(token.text)} (${i})`));
    }
    const texts = typeof choices === "string" ? [] : choices.map((choice) => filled(t(choice), names));
    return { choices: texts, right: await this.#number(right, placement) };
  }

  async #number(right: Right, placement: Placement): Promise<number> {
    if (typeof right === "number") return right;
    if (typeof right === "string" || !("grows" in right)) return 0;
    const [before, after] = await Promise.all(right.grows.map((one) => valueOf(one, placement, this.app.about, this.#passes)));
    return (after!.value ?? 0) > (before!.value ?? 0) ? 0 : 1;
  }
}

function pageOf(placement: Placement): Page {
  return { ...plainPage(placement.reads), ...placement };
}

function textsOf(reads: Record<string, Read>): Record<string, string> {
  return Object.fromEntries(Object.entries(reads).map(([name, { text }]) => [name, text]));
}

/** The likeliest words in the order of the alphabet, so that their order says nothing. */
function words(run: Run, placement: Placement, labels: string[] | null, of: (text: string) => string): { choices: string[]; right: number } {
  const top = (answerOf(run, placement.position ?? 0, labels)?.top ?? []).slice(0, 4).map((one) => of(one.text));
  const choices = [...top].sort();
  return { choices, right: choices.indexOf(top[0] ?? "") };
}

/** The open keys as choices; of many the largest, and others spread over the text. */
export function largestOf(shares: ArrayLike<number>, names: string[]): { choices: string[]; right: number } {
  const open = Array.from(shares, (share, i) => ({ share, i })).filter(({ share }) => share > 0);
  const best = open.reduce((most, one) => (one.share > most.share ? one : most), open[0] ?? { share: 0, i: 0 }).i;
  const others = open.filter(({ i }) => i !== best), step = Math.max(1, others.length / (MOST_CHOICES - 1));
  const some = Array.from({ length: Math.min(others.length, MOST_CHOICES - 1) }, (_, n) => others[Math.floor(n * step)]!.i);
  const order = [best, ...some].sort((one, other) => one - other);
  return { choices: order.map((i) => names[i] ?? `${i}`), right: order.indexOf(best) };
}

/** The way of an explorer: the bar, the sentence and the views share it. */
export const walking = oneOfEach(Walking);
