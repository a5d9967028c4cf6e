/** Questions to an exported file: it answers from what it holds, without a server or a network. */

import type { Host, Reply, RunRequest, StackName } from "../core/protocol";
import { t } from "../i18n/index.svelte";
import type { FileDocument, Question, Source } from "./baked/document";
import { Live } from "./baked/live";
import { Parts, type Find } from "./baked/parts";
import { Recorded } from "./baked/recorded";

interface Opened { parts: Parts; document: FileDocument; source: Source }

export class BakedHost implements Host {
  readonly #opened: Promise<Opened>;

  constructor(find: Find) {
    this.#opened = open(new Parts(find));
    this.#opened.catch(() => undefined); // Each question says so.
  }

  async ask<T>(question: Question, signal?: AbortSignal): Promise<Reply<T>> {
    const opened = await this.#opened, { document } = opened;
    signal?.throwIfAborted();
    if (!document.about.answers.includes(question.ask)) throw new Error(refusal(question.ask, document.command));
    return (await answer(question, opened, signal)) as Reply<T>;
  }
}

async function open(parts: Parts): Promise<Opened> {
  const document = await parts.document();
  const source = document.live
    ? await Live.open(document, document.live, parts)
    : new Recorded(document, document.recorded ?? [], parts);
  return { parts, document, source };
}

/** The fields of a question are those of the protocol: the page asks no others. */
async function answer(question: Question, { parts, document, source }: Opened, signal?: AbortSignal): Promise<Reply<unknown>> {
  const { run, at } = question as unknown as { run: RunRequest; at?: string[] };
  switch (question.ask) {
    case "run":
      return source.run(run);
    case "values":
      return source.values(run, at ?? []);
    case "effects":
      return plain({ effects: await source.effects(run, at ?? [], question.position as number | undefined, signal) });
    case "statistics":
      return source.statistics(run, at ?? []);
    case "lens":
      return source.lens(run, (question.k as number | undefined) ?? 5);
    case "tokenize":
      return plain(tokenized(question, document));
    case "texts":
      return plain({ texts: (await parts.read<Record<string, unknown>>("texts")).json[String(question.language)] ?? {} });
    case "about":
      return plain(document.about);
    default:
      return ofModel(question, run, at ?? [], source);
  }
}

/** What only a file can answer that holds the model. */
function ofModel(question: Question, run: RunRequest, at: string[], source: Source): Reply<unknown> {
  if (!(source instanceof Live)) throw new Error(refusal(question.ask, ""));
  if (question.ask === "weights") return source.weights((question.step as number | null | undefined) ?? null, at);
  const { stack, of, k = 10 } = question as unknown as { stack: StackName; of: { id: number } | { at: string }; k?: number };
  return plain(source.neighbours(run, stack, of, k));
}

function refusal(ask: string, command: string): string {
  return ask === "weights" ? t("file.weights", { command }) : t("file.answer", { ask, command });
}

function tokenized({ text, target = false }: Question, { tokenized, command }: FileDocument): unknown {
  const found = tokenized.find((one) => one.text === text && one.target === target);
  if (!found) throw new Error(t("file.cut_text", { text: String(text), command }));
  return found.reply;
}

function plain(json: unknown): Reply<unknown> {
  return { json, tensors: new Map() };
}
