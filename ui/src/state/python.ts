/** The Python code that computes what the page shows, with the same addresses. */

import { parseAddress } from "../core/address";
import type { About, Edit, RunRequest } from "../core/protocol";
import type { Run } from "./run";

const IMAGE = "image.png";

export function asPython(about: About, run: Run, position: number): string {
  const { request } = run;
  const names = new Set<string>();
  const before: string[] = [];
  const edits = request.edits.map((edit, i) => `    ${text(edit.at)}: ${value(edit, i, about, run, names, before)},`);
  const changed = request.change && (request.change.scale === false || request.change.positions);
  const lines = ["import clearhead"];
  if (request.edits.some((edit) => Array.isArray(edit.value))) lines.unshift("import torch");
  if (names.size) lines.push(`from clearhead.trace import ${[...names].sort().join(", ")}`);
  lines.push("", `model = clearhead.load(${text(opened(about, request))})`);
  if (names.has("add")) lines.splice(lines.indexOf(""), 0, "from clearhead.api.steering import direction");
  const attached = (about.features ?? []).filter((one) => one.source && request.edits.some((edit) => edit.at.startsWith(one.address)));
  if (attached.length) {
    lines.splice(lines.indexOf(""), 0, "from clearhead.api.features import attach, load_features");
    lines.push(`attach(model.network, ${attached.map((one) => `load_features(${one.source})`).join(", ")})`);
  }
  lines.push(...before);
  if (changed) lines.push(`model = model.changed(${change(request)})`);
  if (edits.length) lines.push("edit = {", ...edits, "}");
  const target = run.reply.target === null ? "" : `, ${text(run.reply.target)}`;
  if (about.kind === "image") lines.push(`# ${IMAGE}: the image of the page`);
  lines.push(`trace, logits = model.trace(${input(about, request)}${target}${edits.length ? ", edit=edit" : ""})`);
  const pools = about.plan.config.head.kind === "classification";
  lines.push(`print(logits${pools ? "" : `[${position}]`}.softmax(-1).topk(${Math.min(5, about.labels?.length ?? 5)}))`);
  return `${lines.join("\n")}\n`;
}

/** The folder of a checkpoint: beside the one that was opened, or inside the run's folder. */
function opened({ name, compared }: About, { step }: RunRequest): string {
  if (step === -1) return compared ?? name;
  return step == null ? name : `${name.replace(/\/step-\d{8}$/, "")}/step-${String(step).padStart(8, "0")}`;
}

function input(about: About, request: RunRequest): string {
  return text(about.kind === "image" ? IMAGE : request.text);
}

function change({ change: made }: RunRequest): string {
  const parts: string[] = [];
  if (made?.scale === false) parts.push("scale=False");
  if (made?.positions) parts.push(`positions=${text(made.positions)}`);
  return parts.join(", ");
}

function value(edit: Edit, i: number, about: About, run: Run, names: Set<string>, before: string[]): string {
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
    case "patch": {
      names.add("patch");
      const from = edit.from;
      if (from) before.push(`other_${i}, _ = ${other(about, run.request, from)}`);
      return `patch(other_${i}, ${text(edit.at)})`;
    }
    case "add": {
      const { positive = [], negative = [] } = edit.of ?? {}, list = (texts: string[]): string => `[${texts.map(text).join(", ")}]`;
      names.add("add");
      before.push(`direction_${i} = direction(model, ${list(positive)}, ${list(negative)}, at=${text(edit.at)})`);
      return `add(${number(Number(edit.value))} * direction_${i}.vector)`;
    }
  }
}

/** The pass that a patch is taken from: of the same weights, or of another checkpoint. */
function other(about: About, request: RunRequest, from: RunRequest): string {
  const model = (from.step ?? null) === (request.step ?? null) ? "model" : `clearhead.load(${text(opened(about, from))})`;
  return `${model}.trace(${input(about, from)}${from.target === null ? "" : `, ${text(from.target)}`})`;
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
function text(value: string): string {
  return JSON.stringify(value).replaceAll("\u007f", "\\x7f");
}
