/** The state of a page: its two forward passes, the selection that every view shares, and the actions on both. */

import { getContext, setContext, untrack } from "svelte";
import { messageOf } from "../core/errors";
import type { Host, Tensor } from "../core/host";
import type { About, Change, Edit, OverviewAnswer, RunRequest } from "../core/protocol";
import type { Walk } from "../core/walk";
import { chooseLanguage, t } from "../i18n/index.svelte";
import { fieldOf, startOf, walkIn } from "./own";
import { attentionAt, limit, plainPage, requestA, requestB, type Page, type Reads, type Side } from "./page";
import { CELL, fromFragment, isPlain, toFragment } from "./permalink";
import { addPlaces, hasPlace, placeOf, type PlaceName } from "./places";
import type { Told } from "./python";
import { Run } from "./run";
import { curvesIn, mostTelling, toldOf, type First, type Telling } from "./telling";

/** The number that the reader looks at: a cell of the value at `path`. */
export interface Focus { path: string; index: Record<string, number>; value: number }

/** What is decided in a run, as the overview measures it: at which position, the pair and the word that the places begin with, and the head without which the first answer, `was`, falls most, to `p`; `all`: to how much without each head. */
interface Decided extends First { run: Run; position: number; head: { z: string; was: OverviewAnswer; p: number } | null; all: ReadonlyMap<string, number> }

interface Good { page: Page; past: Page[]; future: Page[] }

const EDIT_DELAY = 15;
/** What a run is made from, and what is chosen of it. */
const COMPUTED = ["reads", "other", "edits", "change", "temperature", "side", "position"] as const;

export class Explorer {
  readonly host: Host;
  readonly about: About;
  page: Page = $state()!;
  /** The model as trained, and edited. A is null until it has been computed, B also if nothing differs. */
  a = $state.raw<Run | null>(null);
  b = $state.raw<Run | null>(null);
  error = $state<string | null>(null);
  /** What was refused, which the fields still show. The page is that of the last good run. */
  refused = $state.raw<Pick<Page, "reads" | "other"> | null>(null);
  busy = $state(false);
  /** Whether cross-attention was asked of a model that has none. */
  noCross = $state(false);
  /** Whether the host has stopped to answer. */
  lost = $state(false);
  /** The last sentence that a screen reader is told. */
  said = $state("");
  #focus = $state.raw<(Focus & { view: PlaceName }) | null>(null);
  #told = $state.raw<(Told & { view: PlaceName }) | null>(null);
  #past: Page[] = $state.raw([]);
  #future: Page[] = $state.raw([]);
  /** What the shown runs are of, and the steps of undo from there. */
  #good: Good | null = null;
  #runs = new Map<string, Run>();
  #asking: AbortController | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Of run A. */
  decided: Decided | null = $state.raw(null);
  /** Where the page itself has gone, of a link that leaves it open: to the most telling head, then to the deciding one. */
  #begun: Telling | null = null;
  #isDecided = false;
  /** The walk that was recorded here, or that came with the link. */
  own = $state.raw<Walk | null>(null);
  onpage: ((fragment: string) => void) | null = null;

  constructor(host: Host, about: About, fragment = "") {
    this.host = host;
    this.about = about;
    host.onlost = () => (this.lost = true);
    if (host.script) addPlaces(about.places.map(({ name }) => name));
    const reads: Reads = { text: about.start.text, target: about.start.target, image: about.start.image ?? null };
    this.page = fromFragment(fragment, reads) ?? this.#first(reads);
  }

  static async open(host: Host, fragment = ""): Promise<Explorer> {
    const { json } = await host.ask("about", {});
    await chooseLanguage(host, json);
    const explorer = new Explorer(host, json, fragment);
    await explorer.refresh();
    explorer.#take(fragment);
    const { a, page } = explorer;
    if (a && page.mode !== "learn" && isPlain(fragment)) Object.assign(page, (explorer.#begun = mostTelling(a)));
    else if (a && isPlain(fragment, CELL) && !isPlain(fragment, ["head"])) Object.assign(page, mostTelling(a, page.part === "cross" && isPlain(fragment, ["layer"]) ? "" : `${explorer.at}.z[h=${page.head}]`));
    return explorer;
  }

  /** The first page: the overview, where the host measures it; head 0 of the second block of the first stack, or of its only block. */
  #first(reads: Reads): Page {
    const { config } = this.about.plan;
    const stack = config.encoder ? "encoder" : "decoder";
    const n = config[stack]?.n_layers ?? 1;
    return { ...plainPage(reads), stack, layer: Math.min(1, n - 1), ...(this.hasOverview && { view: "overview" as const }) };
  }

  // --- what is shown ---

  /** Finds out what the overview begins with, after all that is shown: the position where something is decided, and the head. */
  decide(): (() => void) | undefined {
    const { a, host, about: { answers, plan: { config } } } = this, asking = new AbortController();
    // A file would measure it in the page itself, before what the reader looks at.
    if (!a || !this.hasOverview || !answers.includes("export") || !/^(language|tagging|classification)$/.test(config.head.kind) || untrack(() => this.decided?.run === a)) return;
    const position = untrack(() => this.page.position), ask = (part: "heads" | "curves") => host.ask("overview", { run: a.request, part, later: true, ...(position !== null && { position }) }, asking.signal);
    ask("heads").then(async ({ json, tensors }) => {
      const i = json.decided?.head ?? -1, at = json.at?.[i], was = json.answers?.[0], shares = tensors.get("p")?.data ?? [], p = shares[i] ?? NaN;
      const seen = at ? toldOf(a, at, curvesIn(await ask("curves"))) : { told: null, word: null };
      this.decided = { run: a, position: json.position ?? 0, ...seen, head: at && was && p <= 1 ? { z: at, was, p } : null, all: new Map((json.at ?? []).map((at, i) => [at, shares[i] ?? NaN])) };
      if (seen.told && this.isBegun && !this.#isDecided) this.begin(seen.told);
      this.#isDecided = true;
    }).catch(() => null); // A place shows what it can without it.
    return () => asking.abort();
  }

  /** Goes where the reader has not chosen to go. */
  begin(at: Partial<Page>): void {
    this.go(at);
    const { stack, layer, part, head, query, key } = this.page;
    this.#begun = { stack, layer, part, head, query, key };
  }

  /** Whether the reader has not chosen yet where to look in the model. */
  get isBegun(): boolean {
    const { page } = this, begun = this.#begun;
    return begun !== null && page.mode !== "learn" && Object.entries(begun).every(([name, value]) => page[name as keyof Telling] === value);
  }

  /** The side that is shown. Without a B it is A. */
  get side(): Side {
    return this.b ? this.page.side : "a";
  }

  get hasOverview(): boolean {
    return hasPlace(this.about, placeOf("overview"));
  }

  /** Whether this model does not have the place of the page. */
  get isAbsent(): boolean {
    return this.noCross || !hasPlace(this.about, placeOf(this.page.view));
  }

  /** Goes one step out: from a head to its block and to the whole, and from any other place to where the overview was left. */
  out(): void {
    const { view, zoom } = this.page;
    if (view !== "overview") this.go({ view: "overview" });
    else this.go({ zoom: zoom === "head" ? "block" : "" });
  }

  /** The run whose tokens and single numbers are shown. */
  get shown(): Run | null {
    return this.side === "b" ? this.b : this.a;
  }

  /** Whether the model is without training, so that its answers mean nothing. */
  get untrained(): boolean {
    return !!this.shown?.reply.notes.some((note) => note.includes("not trained"));
  }

  /** The address of the current attention, such as `encoder.blocks.1.attn`. */
  get at(): string {
    return attentionAt(this.page);
  }

  /** The number that the reader looks at: chosen at this place, of an address that the shown run has. */
  get focus(): Focus | null {
    const { shown } = this, focus = this.#focus?.view === this.page.view ? this.#focus : null;
    if (!focus || !shown?.has(focus.path)) return null;
    const shape = shown.reply.facts[focus.path]?.shape;
    return !shape || Object.values(focus.index).every((i, axis) => i < (shape[axis] ?? 0)) ? focus : null;
  }

  set focus(focus: Focus | null) {
    this.#focus = focus && { ...focus, view: untrack(() => this.page.view) };
  }

  /** What this place computes beside the pass, for As Python. */
  get told(): Told | null {
    return this.#told?.view === this.page.view ? this.#told : null;
  }

  set told(told: Told | null) {
    this.#told = told && { ...told, view: untrack(() => this.page.view) };
  }

  /** A value of the chosen side: A's, B's, or B's minus A's. */
  async look(at: string): Promise<Tensor> {
    if (!this.a) throw new Error(t("error.no_run"));
    if (this.side === "a" || !this.b) return this.a.value(at);
    if (this.side === "b") return this.b.value(at);
    const [a, b] = await Promise.all([this.a.value(at), this.b.value(at)]);
    if (a.shape.join() !== b.shape.join()) throw new Error(t("error.shapes", { a: a.shape.join(" × "), b: b.shape.join(" × ") }));
    return { shape: a.shape, data: Float32Array.from(b.data, (value, i) => value - (a.data[i] ?? 0)) };
  }

  // --- going places ---

  /** Changes the selection. Undo does not step over it. */
  go(change: Partial<Page>): void {
    if (change.view && change.view !== this.page.view) this.page.moment = 0;
    if (change.view) this.noCross = false;
    Object.assign(this.page, change);
    this.#clamp();
    if (this.#good) Object.assign(this.#good.page, change);
    this.onpage?.(this.link);
  }

  /** The fragment of the page as it is. */
  get link(): string {
    return toFragment(this.page) + fieldOf(this.own);
  }

  /** The fragment for others: of the page, or the beginning of the walk that was recorded. */
  get shared(): string {
    const position = this.page.position ?? (this.decided?.run === this.a ? (this.decided?.position ?? null) : null);
    return this.own?.stops.length ? startOf(this.own, this.page) : toFragment({ ...this.page, position });
  }

  /** Changes what is computed, as one step of undo. */
  async act(change: Partial<Page>): Promise<void> {
    this.#past = [...this.#past.slice(-99), $state.snapshot(this.page) as Page];
    this.#future = [];
    await this.#goTo(change);
  }

  /** Goes to a page that may have another text: what is selected fits the pass that is shown until that of its text is there. */
  async #goTo(change: Partial<Page>): Promise<void> {
    Object.assign(this.page, change);
    const { query, key, position } = this.page;
    this.#clamp();
    await this.refresh("query" in change ? { query, key, position } : {});
  }

  /** Whether anything differs from the model as trained. */
  get isChanged(): boolean {
    const { edits, change, temperature } = this.page;
    return edits.length > 0 || Object.keys(change).length > 0 || temperature !== 1;
  }

  get canUndo(): boolean {
    return this.#past.length > 0;
  }

  async undo(): Promise<void> {
    const before = this.#past.at(-1);
    if (!before) return;
    this.#future = [...this.#future, $state.snapshot(this.page) as Page];
    this.#past = this.#past.slice(0, -1);
    await this.#goTo(before);
  }

  async redo(): Promise<void> {
    const after = this.#future.at(-1);
    if (!after) return;
    this.#past = [...this.#past, $state.snapshot(this.page) as Page];
    this.#future = this.#future.slice(0, -1);
    await this.#goTo(after);
  }

  /** Goes to the state of a link, as one step of undo. */
  async follow(fragment: string): Promise<void> {
    const page = fromFragment(fragment, this.page.reads);
    if (!page) return;
    await this.act(page);
    this.#take(fragment);
  }

  /** Takes the walk of a link. One that is not whole is refused, and the page keeps its own. */
  #take(fragment: string): void {
    try {
      this.own = walkIn(fragment) ?? this.own;
    } catch (error) {
      this.error = messageOf(error);
    }
  }

  // --- acting ---

  /** Replaces the edit at each address; null removes it. */
  edit(at: string | readonly string[], edit: Omit<Edit, "at"> | null): Promise<void> {
    const sites = [at].flat(), others = this.page.edits.filter((one) => !sites.includes(one.at));
    const edits = edit ? [...others, ...sites.map((at) => ({ at, ...edit }))] : others;
    return this.act({ edits, side: edits.length && this.page.side === "a" ? "b" : this.page.side });
  }

  editAt(at: string): Edit | null {
    return this.page.edits.find((one) => one.at === at) ?? null;
  }

  /** Does the same while a slider moves: as one step of undo, and at most one question at a time. */
  slide(at: string, edit: Omit<Edit, "at">): void {
    const others = this.page.edits.filter((one) => one.at !== at);
    if (others.length === this.page.edits.length) this.#past = [...this.#past, $state.snapshot(this.page) as Page];
    this.page.edits = [...others, { at, ...edit }];
    if (this.page.side === "a") this.page.side = "b";
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.refresh(), EDIT_DELAY);
  }

  change(change: Change): Promise<void> {
    return this.act({ change: { ...this.page.change, ...change }, side: "b" });
  }

  reset(): Promise<void> {
    return this.act({ edits: [], change: {}, temperature: 1, side: "a" });
  }

  // --- computing ---

  /** Computes both forward passes of the page, then selects. A failure sets `error`. What is refused leaves the runs and what they are of as they were. */
  async refresh(selection: Partial<Page> = {}): Promise<void> {
    this.#asking?.abort();
    const asking = (this.#asking = new AbortController());
    this.busy = true;
    try {
      const page = $state.snapshot(this.page) as Page;
      const wantedB = requestB(page);
      const a = await this.#run(requestA(page), asking.signal);
      if (!this.a && !asking.signal.aborted) {
        // If B fails, the page still shows A.
        this.a = a;
        this.#clamp();
        this.#keep({ ...page, other: null, edits: [], change: {}, side: "a" });
      }
      const b = wantedB && (await this.#run(this.#followed(wantedB, a), asking.signal));
      if (asking.signal.aborted) return;
      this.a = a;
      this.b = b;
      Object.assign(this.page, selection);
      this.error = this.refused = null;
      this.lost = false;
      this.#clamp();
      this.#keep($state.snapshot(this.page) as Page);
      this.onpage?.(this.link);
    } catch (error) {
      if (asking.signal.aborted) return;
      this.error = messageOf(error);
      if (this.lost || !this.#good) this.b = null;
      else this.#refuse(this.#good);
    } finally {
      if (this.#asking === asking) this.busy = false;
    }
  }

  #keep(page: Page): void {
    this.#good = { page, past: this.#past, future: this.#future };
  }

  /** Goes back to what the shown runs are of. */
  #refuse({ page, past, future }: Good): void {
    const { reads, other } = $state.snapshot(this.page) as Page;
    this.refused = { reads, other };
    for (const name of COMPUTED) Object.assign(this.page, { [name]: page[name] });
    [this.#past, this.#future] = [past, future];
    this.#clamp();
    this.onpage?.(this.link);
  }

  /** Another forward pass beside A, for what is said and not shown. */
  runOf(request: RunRequest): Promise<Run> {
    const { a } = this;
    if (!a) return Promise.reject(new Error(t("error.no_run")));
    const isA = JSON.stringify(request) === JSON.stringify(requestA(untrack(() => $state.snapshot(this.page)) as Page));
    return this.#run(isA ? request : this.#followed(request, a), new AbortController().signal);
  }

  /** B reads the target that A wrote, so that both answer the same question, unless B has a text of its own. */
  #followed(request: RunRequest, a: Run): RunRequest {
    const written = a.request.target === null ? a.writtenTokens : null;
    return this.page.other || !written ? request : { ...request, target: a.reply.target, written };
  }

  async #run(request: RunRequest, signal: AbortSignal): Promise<Run> {
    const key = JSON.stringify(request);
    const known = this.#runs.get(key);
    if (known) return known;
    const run = await Run.of(this.host, request, this.about.plan, signal);
    this.#runs.set(key, run);
    for (const old of [...this.#runs.keys()].slice(0, -8)) this.#runs.delete(old);
    return run;
  }

  /** Limits the page to what the model and the run have. */
  #clamp(): void {
    const { encoder, decoder } = this.about.plan.config;
    this.noCross ||= this.page.part === "cross" && !(encoder && decoder);
    limit(this.page, this.about, this.a, this.shown?.tokens.length);
  }

  say(sentence: string): void {
    this.said = sentence;
  }
}

const KEY = Symbol("explorer");

export function provide(explorer: Explorer): Explorer {
  return setContext(KEY, explorer);
}

export function explorer(): Explorer {
  return getContext<Explorer>(KEY);
}
