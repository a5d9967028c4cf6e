/** A checkpoint as one ZIP file: a folder that Python's `clearhead.load` opens, with the manifest that it checks. */

import type { Tensor } from "../../core/host";

const ENCODER = new TextEncoder();

/** `texts` are files that do not change with the weights, such as config.json. */
export function checkpoint(folder: string, step: number, tensors: ReadonlyMap<string, Tensor>, texts: Readonly<Record<string, string>>): Uint8Array<ArrayBuffer> {
  const files = new Map<string, Uint8Array>([["model.safetensors", safetensors(tensors)]]);
  for (const [name, text] of Object.entries(texts)) files.set(name, ENCODER.encode(text));
  files.set("MANIFEST.json", manifest(step, files));
  return zip(new Map([...files].map(([name, bytes]) => [`${folder}/${name}`, bytes])));
}

function safetensors(tensors: ReadonlyMap<string, Tensor>): Uint8Array {
  let at = 0;
  const header = Object.fromEntries([...tensors].map(([name, { shape, data }]) => [name, { dtype: "F32", shape, data_offsets: [at, (at += data.byteLength)] }]));
  const text = JSON.stringify(header), head = ENCODER.encode(text + " ".repeat((8 - (ENCODER.encode(text).length % 8)) % 8));
  const length = new Uint8Array(8);
  new DataView(length.buffer).setUint32(0, head.length, true);
  return joined([length, head, ...[...tensors.values()].map(({ data }) => new Uint8Array(data.buffer, data.byteOffset, data.byteLength))]);
}

/** As clearhead/storage/manifest.py writes it: its own sum covers the rest of its text. */
function manifest(step: number, files: ReadonlyMap<string, Uint8Array>): Uint8Array {
  const kinds: Record<string, string> = { "model.safetensors": "tensors", "config.json": "json" };
  const listed = Object.fromEntries([...files].map(([name, bytes]) => [name, { kind: kinds[name] ?? "raw", size: bytes.length, sha256: sha256(bytes) }]));
  const said = { format: 1, step, files: listed, environment: { page: "clearhead" } };
  const text = (document: object): Uint8Array => ENCODER.encode(`${JSON.stringify(document, null, 2)}\n`);
  return text({ ...said, checksum: sha256(text(said)) });
}

function joined(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(parts.reduce((sum, one) => sum + one.length, 0));
  parts.reduce((at, one) => (all.set(one, at), at + one.length), 0);
  return all;
}

/** The first 32 bits of the fractions of roots of the first primes. */
function roots(n: number, power: number): Uint32Array {
  const found: number[] = [];
  for (let k = 2; found.length < n; k++) {
    let prime = true;
    for (let d = 2; d * d <= k; d++) prime &&= k % d !== 0;
    if (prime) found.push((k ** power % 1) * 2 ** 32);
  }
  return Uint32Array.from(found);
}

/** Pages from a disk or without https may not have the browser's own. */
function sha256(bytes: Uint8Array): string {
  const k = roots(64, 1 / 3), state = roots(8, 1 / 2), w = new Uint32Array(64);
  const padded = new Uint8Array(Math.ceil((bytes.length + 9) / 64) * 64), view = new DataView(padded.buffer);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  view.setBigUint64(padded.length - 8, BigInt(bytes.length) * 8n);
  const turn = (x: number, by: number): number => (x >>> by) | (x << (32 - by));
  for (let at = 0; at < padded.length; at += 64) {
    for (let i = 0; i < 64; i++) {
      if (i < 16) w[i] = view.getUint32(at + 4 * i);
      else {
        const x = w[i - 15]!, y = w[i - 2]!;
        w[i] = w[i - 16]! + (turn(x, 7) ^ turn(x, 18) ^ (x >>> 3)) + w[i - 7]! + (turn(y, 17) ^ turn(y, 19) ^ (y >>> 10));
      }
    }
    let [a, b, c, d, e, f, g, h] = state as unknown as [number, number, number, number, number, number, number, number];
    for (let i = 0; i < 64; i++) {
      const one = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + k[i]! + w[i]!) | 0;
      const two = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [a, b, c, d, e, f, g, h] = [(one + two) | 0, a, b, c, (d + one) | 0, e, f, g];
    }
    [a, b, c, d, e, f, g, h].forEach((x, i) => (state[i]! += x));
  }
  return [...state].map((x) => x.toString(16).padStart(8, "0")).join("");
}

function crc32(bytes: Uint8Array): number {
  let crc = -1;
  for (const byte of bytes) {
    crc ^= byte;
    for (let k = 0; k < 8; k++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}

/** Files as they are, dated 1980-01-01, so that equal weights make an equal file. */
function zip(files: ReadonlyMap<string, Uint8Array>): Uint8Array<ArrayBuffer> {
  const parts: Uint8Array[] = [], listed: Uint8Array[] = [];
  let at = 0;
  for (const [name, bytes] of files) {
    const path = ENCODER.encode(name), told = [[crc32(bytes), 4], [bytes.length, 4], [bytes.length, 4], [path.length, 2], [0, 2]] as const;
    const plain = [[20, 2], [0, 2], [0, 2], [0, 2], [0x21, 2], ...told] as const;
    const local = joined([numbers([0x04034b50, 4], ...plain), path, bytes]);
    listed.push(joined([numbers([0x02014b50, 4], [20, 2], ...plain, [0, 2], [0, 2], [0, 2], [0, 4], [at, 4]), path]));
    parts.push(local);
    at += local.length;
  }
  const list = joined(listed);
  return joined([...parts, list, numbers([0x06054b50, 4], [0, 4], [files.size, 2], [files.size, 2], [list.length, 4], [at, 4], [0, 2])]);
}

/** Whole numbers of so many bytes, the lowest first. */
function numbers(...given: (readonly [value: number, bytes: number])[]): Uint8Array {
  return Uint8Array.from(given.flatMap(([value, bytes]) => Array.from({ length: bytes }, (_, i) => (value >>> (8 * i)) & 255)));
}
