/** Answers from the model, which the file holds: the engine computes every run. */

import { formatAddress, indexed, parseAddress } from "../../core/address";
import type { Answered, Asked, Tensor } from "../../core/host";
import type { About, Edit, GenerateSettings, Plan, RunReply, RunRequest } from "../../core/protocol";
import { floats, row, toFloats } from "../../core/tensor";
import { num } from "../../draw/format";
import { grouped } from "../../draw/words";
import { canWait, Decoding, type Reader } from "../../engine/decoding";
import { noSuch } from "../../engine/edits";
import { check, forward, numbersOf, rerun, type Pass } from "../../engine/forward";
import { axesOf, tappedAxes } from "../../engine/taps";
import { t } from "../../i18n/index.svelte";
import { effect, lens, neighbours } from "./analyses";
import { attribution } from "./attribution";
import { changeOf, heldInput, heldOverview, heldRun } from "./ask";
import type { Answers, FileDocument, LiveInput, LiveModel } from "./document";
import { settingsOf, write, type Written } from "./generation";
import { facts, glance } from "./glance";
import { statistics, weightedNorms } from "./heads";
import { Overview } from "./overview";
import { parameters } from "./parameters";
import type { Parts } from "./parts";
import type { Carried, Texts } from "../../tokenizers/texts";
import { patching } from "./patching";
import { splitScore, splitValue } from "./scores";
import { spelled } from "./spelled";

/** The number of passes kept, of a large model fewer, and the milliseconds of work after which the page may draw. */
const KEPT = 8, KEPT_LARGE = 3, AT_A_TIME = 12;
/** How many answers an overview tells. */
const ANSWERS = 6;
/** The most tokens of a target that the model writes, as clearhead/explorer/answering/passes.py has it. */
const LONGEST_WRITTEN = 200;

/** A file of a large model brings a reader along that WebGPU may make quicker (entry/webgpu.ts). */
interface WithWebGPU { clearheadWebGPU?: (decoding: Decoding, room: number) => Promise<Reader> }

/** A file with a tokenizer brings its code along (entry/tokenizers.ts). */
interface WithTexts { ClearheadTexts?: typeof Texts }

interface KeptPass { key: string; input: LiveInput; pass: Pass }

export class Live implements Answers {
  readonly #about: About;
  #made: KeptPass[] = [];
  #seen: { key: string; seen: Overview }[] = [];
  /** What was written here, and inputs that end in the middle of it. */
  #written: { input: LiveInput; ids: readonly number[] }[] = [];
  #begun: LiveInput[] = [];

  private constructor(
    private readonly document: FileDocument,
    private readonly model: LiveModel,
    private readonly weightsOf: ReadonlyMap<string, ReadonlyMap<string, Tensor>>,
    private readonly pixels: ReadonlyMap<string, Tensor>,
    readonly reader: Texts | null,
    private readonly parts: Parts,
  ) {
    this.#about = document.about;
  }

  static async open(document: FileDocument, model: LiveModel, parts: Parts): Promise<Live> {
    const names = [...new Set(model.inputs.map((input) => input.weights))];
    const weights = new Map<string, Map<string, Tensor>>();
    for (const name of names) weights.set(name, await parameters(parts, name));
    const pixels = "pixels" in document.parts ? (await parts.read("pixels")).tensors : new Map<string, Tensor>();
    const carried = "tokenizer" in document.parts ? (await parts.read<Carried>("tokenizer")).json : null, { ClearheadTexts } = globalThis as WithTexts;
    const texts = carried && ClearheadTexts ? new ClearheadTexts(carried, (id) => model.words?.[id] ?? String(id), t) : null;
    return new Live(document, model, weights, pixels, texts, parts);
  }

  /** Reads the texts that a question is about and that the file does not hold. */
  async meet(asked: object, signal?: AbortSignal): Promise<void> {
    for (const run of this.reader ? runsIn(asked) : []) {
      if (!this.#known(run)) await this.#read(run, this.reader!, signal);
    }
  }

  run({ run: request }: Asked<"run">): Answered<"run"> {
    const input = this.#input(request), made = this.#pass(request), tensors = glance(made);
    const ids = tensors.get("output.ids"), isChanged = made.plan !== this.#plan({ ...request, change: {} });
    const wrote = request.target === null && input.run.target !== null && (request.edits.length > 0 || isChanged);
    const json: RunReply = {
      ...input.reply, facts: facts(made), words: ids ? this.#words(ids.data) : {},
      notes: wrote ? [...input.reply.notes, t("file.target")] : input.reply.notes,
    };
    return { json: isChanged ? { ...json, plan: made.plan } : json, tensors };
  }

  values({ run, at }: Asked<"values">): Answered<"values"> {
    const made = this.#pass(run);
    return withShapes(new Map(at.map((address) => [address, opened(valueAt(made, address))])));
  }

  weights({ step, at }: Asked<"weights">): Answered<"weights"> {
    const held = this.model.inputs.find((input) => (input.run.step ?? this.#about.step) === (step ?? this.#about.step));
    const known = this.weightsOf.get(held?.weights ?? "") ?? new Map<string, Tensor>();
    return withShapes(new Map(at.map((address) => [address, parameterAt(known, address)])));
  }

  async effects({ run, at, position, logit }: Asked<"effects">, signal?: AbortSignal): Promise<Answered<"effects">> {
    const made = this.#pass(run), options = { other: this.#other }, effects: Record<string, number> = {};
    const pause = pauses(signal);
    for (const site of at) {
      effects[site] = effect(made, site, position, options, logit);
      await pause();
    }
    return { json: { effects }, tensors: new Map() };
  }

  statistics({ run, at }: Asked<"statistics">): Answered<"statistics"> {
    const made = this.#pass(run);
    const norms = at.map((address) => [`${address}.norms`, weightedNorms(made, address.replace(/\.weights$/, ""))] as const);
    return { json: { heads: statistics(made) }, tensors: new Map(norms) };
  }

  lens({ run, k, whole }: Asked<"lens">): Answered<"lens"> {
    const { addresses, ...tensors } = lens(this.#pass(run), k, whole);
    return { json: { addresses, words: this.#words(tensors.ids.data) }, tensors: new Map(Object.entries(tensors)) };
  }

  async overview(asked: Asked<"overview">, signal?: AbortSignal): Promise<Answered<"overview">> {
    const { run, part, position, near } = asked, held = heldRun(this.model.inputs, run, this.#about), known = held && (await heldOverview(held, asked, this.parts));
    if (known) return known;
    const seen = this.#overview(run, position ?? null, near ?? null), pause = pauses(signal), { at, moved, p, position: found } = await seen.heads(pause), said = { position: found, kind: seen.kind };
    if (part === "curves") return { json: { ...said, ...(await seen.curves(pause)) }, tensors: new Map() };
    if (part === "heads") {
      const { tokens } = this.#input(run).reply, answers = await seen.answers(ANSWERS, pause), { decided, instead } = await seen.decided((stack, i) => { const { text = "", span } = tokens[stack]?.[i] ?? {}; return span || text.includes(",") ? text : null; }, pause), words: Record<number, string> = seen.kind === "vector" ? { 0: near ?? "" } : this.#words([...answers, ...(instead ? [instead] : [])].map(({ id }) => id)), tensors = new Map(Object.entries({ moved, p }).map(([name, data]) => [name, floats([at.length], data)]));
      return { json: { ...said, answers: answers.map((one) => ({ ...one, word: words[one.id]! })), at, decided: { ...decided, ...(instead && { instead: { ...instead, word: words[instead.id]! } }) } }, tensors };
    }
    return { json: { ...said, stacks: await seen.lanes(pause) }, tensors: await seen.streams(part, pause) };
  }

  attribution({ run, ...of }: Asked<"attribution">): Answered<"attribution"> {
    return { json: attribution(this.#pass(run), of), tensors: new Map() };
  }

  qk({ run, ...of }: Asked<"qk">): Answered<"qk"> {
    return { json: splitScore(this.#pass(run), of), tensors: new Map() };
  }

  ov({ run, ...of }: Asked<"ov">): Answered<"ov"> {
    return { json: splitValue(this.#pass(run), of), tensors: new Map() };
  }

  patching(asked: Asked<"patching">, signal?: AbortSignal): Promise<Answered<"patching">> {
    return patching(this.#pass(asked.clean), this.#pass(asked.corrupt), asked, { other: this.#other }, pauses(signal));
  }

  check({ run }: Asked<"check">): Answered<"check"> {
    return { json: { check: check(this.#pass(run)) }, tensors: new Map() };
  }

  async generate({ run, settings: asked }: Asked<"generate">, signal?: AbortSignal): Promise<Answered<"generate">> {
    const input = this.#input(run), plan = this.#plan(run), settings = settingsOf(this.model.writing!, asked);
    const translates = this.#about.kind === "encoder-decoder", { written, reader, possible } = await this.#write(input, plan, run.edits, settings, signal);
    const ids = [...written.nodes.slice(1).map((node) => node.id), ...written.tops.flatMap((top) => top.map(([id]) => id))];
    const { found } = written;
    if (found) this.#written.push({ input, ids: found.written });
    const words = this.#words([...ids].sort((a, b) => a - b));
    const json = {
      text: found ? spelled(found.written.slice(0, found.ended ? -1 : undefined), this.model.words, translates) : "",
      nodes: written.nodes.map((node) => ({ ...node, text: words[node.id] ?? "" })), best: written.best,
      steps: written.tops.map((top) => ({ top })), words, notes: [...without(run.edits.filter((edit) => !possible.includes(edit))), ...by(reader)],
    };
    return { json, tensors: new Map() };
  }

  /** Continues an input, or writes its target, with the edits that can be made meanwhile. */
  async #write(input: LiveInput, plan: Plan, edits: readonly Edit[], settings: ReturnType<typeof settingsOf>, signal?: AbortSignal): Promise<{ written: Written; reader: Reader; possible: Edit[] }> {
    const read = (input.reply.tokens.decoder ?? []).map((token) => token.id);
    const prompt = this.#about.kind === "encoder-decoder" ? read.slice(0, 1) : read, room = (this.#about.limits.decoder ?? Infinity) - prompt.length + 1;
    const possible = edits.filter((edit) => canWait(edit, tappedAxes(parseAddress(edit.at).path) ?? ""));
    const decoding = new Decoding(plan, this.#weightsOf(input), this.#numbers(input, plan), possible, this.#other);
    const limit = Math.min(settings.max_new_tokens, room), { clearheadWebGPU: quicker } = globalThis as WithWebGPU;
    const reader: Reader = settings.beams === 1 && quicker && !decoding.isWhole ? await quicker(decoding, prompt.length + limit) : decoding;
    return { written: await write(reader, prompt, settings, limit, pauses(signal)).finally(() => reader.end?.()), reader, possible };
  }

  neighbours({ run, stack, of, k }: Asked<"neighbours">): Answered<"neighbours"> {
    const made = this.#pass(run), found = neighbours(made, stack, "id" in of ? of.id : "at" in of ? valueAt(made, of.at) : floats([of.numbers.length], Float32Array.from(of.numbers)), k);
    const words = Object.fromEntries(found.ids.map((id) => [id, this.#token(id)]));
    return { json: { ...found, words }, tensors: new Map() };
  }

  // --- runs ---

  #input(request: RunRequest): LiveInput {
    const found = this.#known(request);
    if (found) return found;
    const texts = [...new Set(this.model.inputs.map(({ run }) => `“${run.text}”`))].join(", ");
    throw new Error(t("file.text", { texts, command: this.document.command }));
  }

  #known(request: RunRequest): LiveInput | null {
    const same = ({ run }: LiveInput): boolean => run.text === request.text && run.target === request.target && (run.step ?? null) === (request.step ?? null);
    return heldInput(this.model.inputs, request, this.#about) ?? this.#begun.find(same) ?? this.#begin(request);
  }

  /** Reads a text with the file's tokenizer. Without a target an encoder-decoder reads the one that it writes. */
  async #read(request: RunRequest, texts: Texts, signal?: AbortSignal): Promise<void> {
    const step = request.step ?? this.#about.step, like = this.model.inputs.find(({ run }) => (run.step ?? this.#about.step) === step);
    if (!like) return;
    const { text, target } = request, { writing } = this.model, own = request.written ?? (target === null && this.#about.kind === "encoder-decoder" && writing ? [] : null);
    const begin = (target: string | null, ids: readonly number[] | null): LiveInput => {
      const { tokens, unknown } = texts.read(text, target, ids), notes = unknown.length ? [t("file.unknown", { words: unknown.join(", ") })] : [];
      return { run: { ...request, target, edits: [] }, parts: {}, weights: like.weights, reply: { tokens, target, facts: {}, words: {}, notes } };
    };
    let made = begin(target, own), ids = own;
    if (own && !request.written) {
      const greedy = { max_new_tokens: Math.min(writing!.max_new_tokens, LONGEST_WRITTEN), beams: 1, temperature: 0, top_k: null, top_p: null, seed: 0 } as GenerateSettings;
      const { found } = (await this.#write(made, this.#plan({ ...request, change: {} }), [], settingsOf(writing!, greedy), signal)).written;
      ids = found?.written.slice(0, found.ended ? -1 : undefined) ?? [];
    }
    if (own && target === null) made = begin(spelled(ids!, this.model.words, true), ids);
    this.#begun.push(made, { ...made, run: { ...made.run, target } });
  }

  /** An input that goes on as the model wrote it: its tokens are known without a tokenizer. */
  #begin(request: RunRequest): LiveInput | null {
    const translates = this.#about.kind === "encoder-decoder";
    for (const { input, ids } of this.#written) {
      const { text } = input.run, rest = translates ? request.target : request.text.slice(text.length);
      if (rest === null || !(translates ? request.text === text : request.text.startsWith(text))) continue;
      const n = ids.findIndex((_, i) => spelled(ids.slice(0, i), this.model.words, translates).trim() === rest.trim());
      if (n < 0) continue;
      const read = input.reply.tokens.decoder ?? [], tokens = ids.slice(0, n).map((id) => ({ id, text: this.#token(id), span: null, type: 0 }));
      const decoder = [...(translates ? read.slice(0, 1) : read), ...tokens];
      const reply = { ...input.reply, tokens: { ...input.reply.tokens, decoder }, target: translates ? rest : null };
      this.#begun.push({ run: { ...request, edits: [] }, parts: {}, weights: input.weights, reply });
      return this.#begun.at(-1)!;
    }
    return null;
  }

  #plan(request: RunRequest): Plan {
    const { scale, positions } = changeOf(request, this.#about);
    const found = this.model.plans.find((one) => one.scale === scale && one.positions === positions);
    if (!found) throw new Error(`positions: expected one of ${this.#about.changes.positions.join(", ")}, got ${positions}`);
    return found.plan;
  }

  /** The pass of this request if it is kept, else a rerun of the latest pass of the same input. */
  #pass(request: RunRequest): Pass {
    const key = JSON.stringify(request);
    const known = this.#made.find((one) => one.key === key);
    if (known) return known.pass;
    const input = this.#input(request), plan = this.#plan(request);
    const before = this.#made.filter((one) => one.input === input && one.pass.plan === plan).at(-1)?.pass;
    const made = before ? rerun(before, request.edits, { other: this.#other }) : this.#first(input, plan, request);
    this.#made = [...this.#made.slice(1 - (this.model.is_large ? KEPT_LARGE : KEPT)), { key, input, pass: made }];
    return made;
  }

  /** Where words are masked, their answers are the ones to choose from. */
  #overview(request: RunRequest, position: number | null, near: string | null): Overview {
    const key = JSON.stringify([request, position, near]), known = this.#seen.find((one) => one.key === key);
    if (known) return known.seen;
    const { tokens } = this.#input(request).reply, { plan: { config }, mask } = this.#about, read = tokens[config.decoder ? "decoder" : "encoder"] ?? [];
    const masked = config.head.kind === "language" && mask !== null ? read.flatMap(({ text }, i) => (text === mask ? [i] : [])) : [];
    const seen = new Overview(this.#pass(request), { other: this.#other }, position, masked, Object.fromEntries(Object.entries(tokens).map(([stack, own]) => [stack, grouped(own)])), near === null ? null : (this.#pass({ ...request, text: near, edits: [] }).values.get("head.unit")!.data as Float32Array));
    this.#seen = [...this.#seen.slice(1 - KEPT_LARGE), { key, seen }];
    return seen;
  }

  #first(input: LiveInput, plan: Plan, request: RunRequest): Pass {
    return forward(plan, this.#weightsOf(input), this.#numbers(input, plan), request.edits, { other: this.#other });
  }

  #weightsOf(input: LiveInput): ReadonlyMap<string, Tensor> {
    return this.weightsOf.get(input.weights) ?? new Map();
  }

  #numbers(input: LiveInput, plan: Plan): Map<string, Tensor> {
    return numbersOf(plan.config, input.reply.tokens, this.pixels.get(`pixels.${this.model.inputs.indexOf(input)}`));
  }

  /** Where a patch comes from. */
  #other = (from: RunRequest, path: string): Tensor => valueAt(this.#pass(from), path);

  // --- words ---

  #words(ids: ArrayLike<number>): Record<string, string> {
    const { head } = this.#about.plan.config, named = head.kind === "classification" || head.kind === "tagging";
    const word = (id: number): string => (named ? (this.#about.labels?.[id] ?? String(id)) : this.#token(id));
    return Object.fromEntries([...new Set(Array.from(ids))].map((id) => [id, word(id)]));
  }

  #token(id: number): string {
    return this.model.words?.[id] ?? String(id);
  }
}

/** Every run in a question, those first that others are patched from. */
function runsIn(asked: unknown): RunRequest[] {
  if (typeof asked !== "object" || asked === null) return [];
  return [...Object.values(asked).flatMap(runsIn), ...("text" in asked && "edits" in asked ? [asked as RunRequest] : [])];
}

/** Lets the page draw where enough time has gone by. */
function pauses(signal?: AbortSignal): () => Promise<void> {
  let began = performance.now();
  return async () => {
    if (performance.now() - began < AT_A_TIME) return;
    await new Promise((resolve) => setTimeout(resolve));
    signal?.throwIfAborted();
    began = performance.now();
  };
}

/** Which processor computed a text, where there was a choice. */
function by(reader: Reader): string[] {
  const { measured } = reader;
  if (!measured) return [];
  const { webgpu, wasm, why } = measured;
  if (why !== null) return [t("file.no_webgpu", { why })];
  const is = (ms: number | null): string => num(ms ?? NaN, 1);
  return [t("file.by", { by: reader.end ? "WebGPU" : "WebAssembly", webgpu: is(webgpu), wasm: is(wasm) })];
}

function without(edits: readonly Edit[]): string[] {
  return edits.length ? [t("file.without_edits", { edits: [...new Set(edits.map((edit) => edit.at))].join(", ") })] : [];
}

function valueAt(pass: Pass, at: string): Tensor {
  const { path, index } = parseAddress(at);
  const value = pass.values.get(path) ?? (path.endsWith(".embed.pixels") ? pass.numbers.get(path) : undefined);
  const axes = value && (path.endsWith(".embed.pixels") ? "c y x" : axesOf(path, value.shape.length));
  if (!value || !axes) throw new Error(noSuch(path));
  return indexed(value, axes, index, at);
}

/** Writes closed cells as NaN. */
export function opened(tensor: Tensor): Tensor {
  if (!tensor.data.includes(-Infinity)) return tensor;
  return { shape: tensor.shape, data: toFloats(tensor).data.map((x) => (x === -Infinity ? NaN : x)) };
}

function parameterAt(known: ReadonlyMap<string, Tensor>, at: string): Tensor {
  const address = parseAddress(at), found = known.get(address.path);
  if (!found) throw new Error(`${address.path}: expected a parameter, got none`);
  if (address.index.length === 0) return { shape: found.shape, data: found.data };
  const [[axis, i]] = address.index as [[string, number]], n = found.shape[0] ?? 0;
  if (address.index.length > 1 || axis !== "i" || !(i >= 0 && i < n)) {
    throw new Error(`${formatAddress(address)}: expected no index, or one row from i=0 to i=${n - 1}`);
  }
  return { shape: found.shape.slice(1), data: row(found, i) };
}

export function withShapes(tensors: Map<string, Tensor>): Answered<"values"> {
  return { json: { shapes: Object.fromEntries([...tensors].map(([at, { shape }]) => [at, shape])) }, tensors };
}
