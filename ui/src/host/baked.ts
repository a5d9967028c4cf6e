/** Answers questions from an exported file, without a server or a network. */

import type { Answered, Ask, Asked, Host, PlaceScript, Reply } from "../core/host";
import { t } from "../i18n/index.svelte";
import { Background } from "./baked/background";
import type { Answers, FileDocument } from "./baked/document";
import { answersHeld } from "./baked/held";
import { Live } from "./baked/live";
import { bytesOf, Parts, type Find } from "./baked/parts";
import { Recorded } from "./baked/recorded";

interface Opened { document: FileDocument; sources: Answers[]; live: Live | null; background: Host | null }

export class BakedHost implements Host {
  readonly #opened: Promise<Opened>;

  /** `script` is the text of this module, with which a worker computes a large model; `drop` gives up what that has taken. */
  constructor(find: Find, script: string | null = null, drop?: (name: string) => void) {
    this.#opened = open(new Parts(find), script, drop);
    this.#opened.catch(() => undefined); // Each question rejects with it.
  }

  async ask<A extends Ask>(ask: A, asked: Asked<A>, signal?: AbortSignal): Promise<Answered<A>> {
    const { document: { about, command }, sources, live, background } = await this.#opened;
    signal?.throwIfAborted();
    if (background) return background.ask(ask, asked, signal);
    const source = about.answers.includes(ask) && sources.find((one) => one[ask]);
    if (!source) throw new Error(ask === "weights" ? t("file.weights", { command }) : t("file.answer", { ask, command }));
    await live?.meet(asked, signal);
    return source[ask]!(asked, signal);
  }

  /** The file's own scripts of places stand after this one, and have run once it is opened. */
  async script(place: string): Promise<PlaceScript> {
    await this.#opened;
    return (globalThis as unknown as { clearheadPlaces: Record<string, PlaceScript> }).clearheadPlaces[place]!;
  }
}

async function open(parts: Parts, script: string | null, drop?: (name: string) => void): Promise<Opened> {
  const document = await parts.document();
  const background = document.live?.is_large && script ? await inBackground(script, parts, document, drop) : null;
  if (background) return { document, sources: [], live: null, background };
  const live = document.live ? await Live.open(document, document.live, parts) : null, runs = live ?? new Recorded(document, document.recorded ?? [], parts);
  return { document, sources: [runs, answersHeld(document, parts), asWritten(document, parts, live)], live, background };
}

/** None where there can be no worker: the page computes itself. */
async function inBackground(script: string, parts: Parts, document: FileDocument, drop?: (name: string) => void): Promise<Host | null> {
  const more = document.parts.webgpu ? (await parts.read<{ script: string }>("webgpu")).json.script : "";
  const take = (name: string): Uint8Array<ArrayBuffer> => {
    const bytes = bytesOf(parts.find(name) as string);
    drop?.(name);
    return bytes;
  };
  return Background.start(script, `${more}${parts.find("tokenizers") ?? ""}`, take).catch(() => null);
}

/** What does not depend on a run. */
function asWritten(document: FileDocument, parts: Parts, live: Live | null): Answers {
  return {
    about: () => plain(document.about),
    texts: async ({ language }) =>
      plain({ texts: (await parts.read<Record<string, Record<string, string>>>("texts")).json[language] ?? {} }),
    tokenize: ({ text, target }) => {
      const found = document.tokenized.find((one) => one.text === text && one.target === target)?.reply ?? live?.reader?.tokenize(text);
      if (!found) throw new Error(t("file.cut_text", { text, command: document.command }));
      return plain(found);
    },
  };
}

function plain<T>(json: T): Reply<T> {
  return { json, tensors: new Map() };
}
