/** The parts of an exported file. Each is a reply, gzipped and in base64, and is decoded when first needed. */

import type { Reply } from "../../core/protocol";
import { t } from "../../i18n/index.svelte";
import { readReply } from "../reply";
import type { FileDocument } from "./document";

const FORMAT = "clearhead-export/1";

/** Finds the text of a part in the file. */
export type Find = (name: string) => string | null;

export class Parts {
  #read = new Map<string, Promise<Reply<unknown>>>();

  constructor(private readonly find: Find) {}

  /** Reads the table of contents. Rejects with one line if the file is incomplete. */
  async document(): Promise<FileDocument> {
    const { json } = await this.read<FileDocument>("data");
    const isWhole = json.format === FORMAT && Object.entries(json.parts).every(([name, length]) => this.find(name)?.length === length);
    if (!isWhole) throw new Error(t("file.cut"));
    return json;
  }

  /** All parts as they stand in the file. */
  texts(document: FileDocument): Record<string, string> {
    return Object.fromEntries(["data", ...Object.keys(document.parts)].map((name) => [name, this.find(name) ?? ""]));
  }

  /** Reads a part once, without keeping it. */
  take(name: string): Promise<Reply<unknown>> {
    return decoded(this.find(name) ?? "");
  }

  read<T>(name: string): Promise<Reply<T>> {
    let found = this.#read.get(name);
    if (!found) this.#read.set(name, (found = decoded(this.find(name) ?? "")));
    return found as Promise<Reply<T>>;
  }
}

async function decoded(text: string): Promise<Reply<unknown>> {
  try {
    const packed = atob(text), bytes = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return readReply(await new Response(stream).arrayBuffer());
  } catch {
    throw new Error(t("file.cut"));
  }
}
