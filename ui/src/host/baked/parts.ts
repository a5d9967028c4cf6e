/** The parts of an exported file. Each is a reply, gzipped and as text, and is decoded when first needed. */

import type { Reply } from "../../core/host";
import { t } from "../../i18n/index.svelte";
import { readReply } from "../reply";
import type { FileDocument } from "./document";

/** What stands before a dense text, and before a character that stands for another: clearhead/explorer/export/page.py. */
const FIRST = 0x100, ESCAPE = 0x40;
const FORMAT = "clearhead-export/1";

/** Finds a part in the file: its text, or, in a worker of the page, its bytes. */
export type Find = (name: string) => string | null | Promise<Uint8Array<ArrayBuffer>>;

export class Parts {
  #read = new Map<string, Promise<Reply<unknown>>>();

  constructor(readonly find: Find) {}

  /** Reads the table of contents. Rejects with one line if the file is incomplete; a worker's page has seen to that. */
  async document(): Promise<FileDocument> {
    const found = this.find("data"), isText = typeof found === "string", json = (await decoded(found)).json as FileDocument;
    const isThere = ([name, length]: [string, number]): boolean => !isText || (this.find(name) as string | null)?.length === length;
    if (json.format !== FORMAT || !Object.entries(json.parts).every(isThere)) throw new Error(t("file.cut"));
    return json;
  }

  /** Reads a part once, without keeping it. */
  take(name: string): Promise<Reply<unknown>> {
    return decoded(this.find(name));
  }

  read<T>(name: string): Promise<Reply<T>> {
    let found = this.#read.get(name);
    if (!found) this.#read.set(name, (found = decoded(this.find(name))));
    return found as Promise<Reply<T>>;
  }
}

async function decoded(found: ReturnType<Find>): Promise<Reply<unknown>> {
  try {
    const { readable, writable } = new DecompressionStream("gzip"), writer = writable.getWriter();
    const bytes = typeof found === "string" ? bytesOf(found) : await found;
    const written = writer.write(bytes!).then(() => writer.close());
    const [content] = await Promise.all([new Response(readable).arrayBuffer(), written]);
    return readReply(content);
  } catch {
    throw new Error(t("file.cut"));
  }
}

export function bytesOf(text: string): Uint8Array<ArrayBuffer> {
  return text.charCodeAt(0) >= FIRST ? dense(text) : sparse(text);
}

function sparse(text: string): Uint8Array<ArrayBuffer> {
  const packed = atob(text), bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  return bytes;
}

/** A character for two bytes, or two where one would be a mark of HTML or half of a pair. The first says whether a byte is too many. */
function dense(text: string): Uint8Array<ArrayBuffer> {
  const units = new Uint16Array(text.length);
  let n = 0;
  for (let i = 1; i < text.length; i++) {
    const unit = text.charCodeAt(i), stands = unit === ESCAPE ? text.charCodeAt(++i) - FIRST : unit;
    units[n++] = unit === ESCAPE && stands >= FIRST ? stands + 0xd700 : stands;
  }
  return new Uint8Array(units.buffer, 0, 2 * n - (text.charCodeAt(0) - FIRST));
}
