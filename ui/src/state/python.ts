/** The Python code that computes what the page shows, with the same addresses. */

import { parseAddress } from "../core/address";
import type { About, Edit, RunRequest } from "../core/protocol";
import { t } from "../i18n/index.svelte";
import type { Run } from "./run";

const IMAGE = "image.png";
const READ = "from clearhead.explorer.recording.tokens import read";
/** The name of a model that was opened from Python (clearhead/explorer/answering/opened.py). */
const UNNAMED = "model";

/** What the page shows of a run: the position and temperature of its answer, and the number that is looked at. */
export interface Shown { position: number; temperature: number; number: string | null; told: Told | null; against: Run | null }

/** What a place computes beside the pass: imports and lines, of the model as it was opened or of the shown run. */
export interface Told { imports: string[]; lines: string[]; plain?: boolean }

/** What a place computes beside the pass of the model as it was opened, or else of the shown run: the text of a key has imports,
 *  an empty line, and the lines. */
export function toldBy(key: string, values: Record<string, string | number | null | undefined>, plain = true): Told {
  const [imports, lines] = t(key, values).split("\n\n").map((part) => part.split("\n"));
  return { plain, imports: imports!, lines: lines! };
}

/** The code of a run. `against`: what it is compared with, where the page shows the difference. */
export function asPython(about: About, run: Run, { position, temperature, number: at, told, against }: Shown): string {
  const { request, reply } = run, imports = new Set(["import clearhead"]), names = new Set<string>();
  const patched: string[] = [], directed: string[] = [];
  const edits = request.edits.map((edit, i) => `    ${text(edit.at)}: ${value(edit, i, run, names, directed)},`);
  if (request.edits.some((edit) => Array.isArray(edit.value))) imports.add("import torch");
  if (directed.length) imports.add("from clearhead.api.steering import direction");
  const lines = opening("model", about, request);
  if (about.dtype.startsWith("int")) {
    imports.add("from clearhead.explorer.export.page import rounded_model");
    lines.push(`model, _ = rounded_model(model, ${text(about.dtype)})`);
  }
  const attached = (about.features ?? []).filter((one) => one.source && request.edits.some((edit) => edit.at.startsWith(one.address)));
  if (attached.length) {
    imports.add("from clearhead.api.features import attach, load_features");
    lines.push(`attach(model.network, ${attached.map((one) => `load_features(${one.source})`).join(", ")})`);
  }
  const path = at === null ? "" : parseAddress(at).path, number = path in reply.facts ? `trace[${text(at!)}]` : null;
  request.edits.forEach((edit, i) => edit.from && patched.push(...before(`${i}`, edit.from, about, request, imports)));
  lines.push(...patched);
  told?.imports.forEach((one) => imports.add(one));
  if (told?.plain) lines.push(...told.lines);
  if (against) lines.push(...before("a", readBy(against), about, request, imports));
  if (isChanged(request)) lines.push(`model = model.changed(${change(request)})`);
  lines.push(...directed);
  if (edits.length) lines.push("edit = {", ...edits, "}");
  if (about.kind === "image" || about.plan.config.pictures) lines.push(`# ${IMAGE}: the image of the page`);
  lines.push(...traced("trace, logits", "model", about, { ...request, target: reply.target }, wroteItself(run), edits.length ? "edit" : "", imports));
  const { kind } = about.plan.config.head, width = reply.facts["head.logits"]?.shape.at(-1) ?? 0;
  if (/^(language|classification|tagging)$/.test(kind)) {
    for (const logits of against ? ["logits_a", "logits"] : ["logits"]) {
      const row = `${logits}${kind === "classification" ? "" : `[${position}]`}`;
      lines.push(`print(${temperature === 1 ? row : `(${row} / ${temperature})`}.softmax(-1).topk(${Math.min(5, width)}))`);
    }
  }
  if (told && !told.plain) lines.push(...told.lines);
  if (number) lines.push(`print(${against ? `(${number} - other_a[${text(at!)}])` : number}.item())  # ${at}`);
  if (names.size) imports.add(`from clearhead.trace import ${[...names].sort().join(", ")}`);
  const order = [...imports].sort((one, other) => Number(one.startsWith("from")) - Number(other.startsWith("from")) || (one < other ? -1 : 1));
  return `${[...order, "", ...lines].join("\n")}\n`;
}

/** The tokens that the model wrote without a text of the reader's: they may not be those of their text. */
function wroteItself({ request, writtenTokens, reply }: Run): number[] | null {
  return request.written ?? (request.target === null && reply.tokens.encoder && reply.tokens.decoder ? writtenTokens : null);
}

/** Opens a model; one that was opened from Python has no name. */
function opening(name: string, about: About, request: RunRequest): string[] {
  const from = opened(about, request);
  if (from === UNNAMED) return [`# ${name}: the one whose explore() opened this page`];
  const revision = about.revision && request.step == null ? `, revision=${text(about.revision)}` : "";
  return [`${name} = clearhead.load(${text(from)}${revision})`];
}

/** The pass that a patch is taken from, with its own change: of the same weights, or of another checkpoint. */
function before(i: string, from: RunRequest, about: About, request: RunRequest, imports: Set<string>): string[] {
  const isSame = (from.step ?? null) === (request.step ?? null), own = isSame ? "model" : `model_${i}`;
  const name = isChanged(from) ? `${own}.changed(${change(from)})` : own;
  return [...(isSame ? [] : opening(own, about, from)), ...traced(`other_${i}, logits_${i}`, name, about, from, from.written ?? null, "", imports)];
}

/** A traced pass: by the text where that says all, else by the tokens that were read. */
function traced(made: string, model: string, about: About, request: RunRequest, written: number[] | null, edit: string, imports: Set<string>): string[] {
  const { target } = request, edits = edit ? `, edit=${edit}` : "";
  if (written === null && (about.has_tokenizer || about.kind === "image")) {
    return [`${made} = ${model}.trace(${input(about, request)}${target === null ? "" : `, ${text(target)}`}${about.plan.config.pictures ? `, image=${text(IMAGE)}` : ""}${edits})`];
  }
  for (const line of ["import torch", READ]) imports.add(line);
  const [seen, logits] = made.split(", ");
  return [
    `with torch.no_grad(), ${model}.tracing(${edit}) as ${seen}:`,
    `    ${logits} = ${model}.network(*${inputsOf(about, { ...request, written: written ?? undefined }, model)})[0]`,
  ];
}

/** What the stacks read; its code imports READ. */
export function inputsOf(about: About, request: RunRequest, model = "model"): string {
  const { target, written } = request;
  const other = written ? `"", written=[${written.join(", ")}]` : target === null ? "None" : text(target);
  return `read(${model}, ${input(about, request)}, ${other}).inputs`;
}

/** The request of a run with the tokens that it read. */
export function readBy(run: Run): RunRequest {
  return { ...run.request, target: run.reply.target, written: wroteItself(run) ?? undefined };
}

/** The folder of a checkpoint: beside the one that was opened, or inside the run's folder. */
function opened({ name, compared }: About, { step }: RunRequest): string {
  if (step === -1) return compared ?? name;
  return step == null ? name : `${name.replace(/\/step-\d{8}$/, "")}/step-${String(step).padStart(8, "0")}`;
}

function input(about: About, request: RunRequest): string {
  return text(about.kind === "image" ? IMAGE : request.text);
}

function isChanged({ change: made }: RunRequest): boolean {
  return made?.scale === false || Boolean(made?.positions);
}

function change({ change: made }: RunRequest): string {
  const parts: string[] = [];
  if (made?.scale === false) parts.push("scale=False");
  if (made?.positions) parts.push(`positions=${text(made.positions)}`);
  return parts.join(", ");
}

function value(edit: Edit, i: number, run: Run, names: Set<string>, directed: string[]): string {
  switch (edit.do) {
    case "zero":
      names.add("zero");
      return "zero";
    case "set":
      return Array.isArray(edit.value) ? `torch.tensor([${edit.value.map(number).join(", ")}])` : number(edit.value ?? 0);
    case "scale":
      names.add("scale");
      return `scale(${number(Number(edit.value ?? 1))})`;
    case "close":
      return 'float("-inf")';
    case "mean":
      return `lambda value: value.mean(${positionAxis(edit, run)}, keepdim=True)`;
    case "patch":
      names.add("patch");
      return `patch(other_${i}, ${text(edit.at)})`;
    case "add": {
      const { positive = [], negative = [] } = edit.of ?? {}, list = (texts: string[]): string => `[${texts.map(text).join(", ")}]`;
      names.add("add");
      directed.push(`direction_${i} = direction(model, ${list(positive)}, ${list(negative)}, at=${text(edit.at)})`);
      return `add(${number(Number(edit.value))} * direction_${i}.vector)`;
    }
  }
}

/** The axis of positions, counted from the end, after indexing with the address. */
function positionAxis(edit: Edit, run: Run): number {
  const { path, index } = parseAddress(edit.at);
  const taken = new Set(index.map(([axis]) => axis));
  const axes = (run.reply.facts[path]?.axes ?? "t d").split(" ").filter((axis) => !taken.has(axis));
  return axes.findIndex((axis) => axis === "t" || axis === "s") - axes.length;
}

function number(x: number): string {
  const digits = String(x);
  return /^-?\d+$/.test(digits) ? `${digits}.0` : digits;
}

/** A Python string literal: JSON's, except for the one character that Python escapes. */
export function text(value: string): string {
  return JSON.stringify(value).replaceAll("\u007f", "\\x7f");
}
