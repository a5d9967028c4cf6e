/** The parts of an exported file. Each is a reply, gzipped and as text, and is decoded when first needed. */

import type { Reply } from "../../core/host";
import { t } from "../../i18n/index.svelte";
import { readReply } from "../reply";
import type { FileDocument } from "./document";

/** The first of 2^15 characters that stand for 15 bits each: clearhead/explorer/export/page.py. */
const FIRST = 0x100, BYTES = 15;
const FORMAT = "clearhead-export/1";

/** Finds the text of a part in the file. */
export type Find = (name: string) => string | null;

export class Parts {
  #read = new Map<string, Promise<Reply<unknown>>>();

  constructor(readonly find: Find) {}

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
    const { readable, writable } = new DecompressionStream("gzip"), writer = writable.getWriter();
    const written = writer.write(text.charCodeAt(0) >= FIRST ? dense(text) : sparse(text)).then(() => writer.close());
    const [content] = await Promise.all([new Response(readable).arrayBuffer(), written]);
    return readReply(content);
  } catch {
    throw new Error(t("file.cut"));
  }
}

function sparse(text: string): Uint8Array<ArrayBuffer> {
  const packed = atob(text), bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  return bytes;
}

/** 8 characters for 15 bytes, the first bits first. The first character says how many bytes too many there are. */
function dense(text: string): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(((text.length - 1) / 8) * BYTES);
  for (let i = 1, at = 0; i < text.length; i += 8) {
    let held = text.charCodeAt(i) - FIRST;
    // The k-th character ends a byte with its first k bits, has one in the middle, and begins one with its last 7 - k.
    for (let k = 0; k < 7; k++) {
      const next = text.charCodeAt(i + k + 1) - FIRST;
      bytes[at++] = held >> (7 - k);
      bytes[at++] = (held << (k + 1)) | (next >> (14 - k));
      held = next;
    }
    bytes[at++] = held;
  }
  return bytes.subarray(0, bytes.length - (text.charCodeAt(0) - FIRST));
}
