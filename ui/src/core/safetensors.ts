/** The safetensors format: a length, a JSON header of that length, and the numbers (little-endian, row by row). */

import { brainToFloats, halvesToFloats } from "./half";
import type { Numbers, Tensor } from "./host";
import { size } from "./tensor";

export interface SafeFile {
  metadata: Record<string, string>;
  tensors: Map<string, Tensor>;
}

interface Codec {
  /** Bytes of a number. */
  width: number;
  /** A view where the array starts at a multiple of its width, else a copy. */
  read(bytes: Uint8Array, name: string): Numbers;
}

const CODECS: Record<string, Codec> = {
  F32: { width: 4, read: (bytes) => new Float32Array(...aligned(bytes, 4)) },
  I32: { width: 4, read: (bytes) => new Int32Array(...aligned(bytes, 4)) },
  U8: { width: 1, read: (bytes) => bytes },
  F16: { width: 2, read: (bytes) => halvesToFloats(new Uint16Array(...aligned(bytes, 2))) },
  BF16: { width: 2, read: (bytes) => brainToFloats(new Uint16Array(...aligned(bytes, 2))) },
  I64: { width: 8, read: (bytes, name) => narrow(new BigInt64Array(...aligned(bytes, 8)), name) },
};

const LONGEST_HEADER = 100_000_000;
const AGAIN = "try reading it again";

/** Checks the whole header before it makes an array. Throws a one-line Error. */
export function readSafetensors(content: ArrayBuffer | Uint8Array): SafeFile {
  const bytes = content instanceof Uint8Array ? content : new Uint8Array(content);
  const { header, numbers } = split(bytes);
  const metadata: [string, string][] = [];
  const entries: Entry[] = [];
  for (const [name, fact] of Object.entries(header)) {
    if (name === "__metadata__") metadata.push(...strings(fact));
    else entries.push(entryOf(name, fact));
  }
  checkPlaces(entries, numbers.length);
  const tensors = new Map<string, Tensor>();
  for (const { name, codec, shape, start, end } of entries) {
    tensors.set(name, { shape, data: codec.read(numbers.subarray(start, end), name) });
  }
  return { metadata: Object.fromEntries(metadata), tensors };
}

// --- the header ------------------------------------------------------------------------------------------------------

interface Entry {
  name: string;
  codec: Codec;
  shape: number[];
  start: number;
  end: number;
}

function split(bytes: Uint8Array): { header: object; numbers: Uint8Array } {
  if (bytes.length < 8) fail(`expected at least 8 bytes, got ${bytes.length}`);
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  const most = Math.min(bytes.length - 8, LONGEST_HEADER);
  if (length > most) fail(`expected a header of at most ${most} bytes, got ${length}`);
  const header = parse(bytes.subarray(8, 8 + length));
  if (!isObject(header)) fail("expected a header that is a JSON object");
  return { header, numbers: bytes.subarray(8 + length) };
}

function parse(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    return fail("expected a header in JSON");
  }
}

function entryOf(name: string, fact: unknown): Entry {
  if (!isObject(fact)) fail(`${name}: expected an object with dtype, shape and data_offsets`);
  const { dtype, shape, data_offsets: places } = fact as Record<string, unknown>;
  const codec = typeof dtype === "string" && Object.hasOwn(CODECS, dtype) ? CODECS[dtype] : undefined;
  if (!codec) fail(`${name}: expected a dtype of ${Object.keys(CODECS).join(", ")}, got ${JSON.stringify(dtype)}`);
  if (!isLengths(shape)) fail(`${name}: expected a shape of whole numbers, got ${short(shape)}`);
  if (!isLengths(places) || places.length !== 2) fail(`${name}: expected two data_offsets, got ${short(places)}`);
  const [start, end] = places as [number, number];
  const expected = size(shape) * codec.width;
  if (end - start !== expected) fail(`${name}: expected ${expected} bytes for [${shape}], got ${end - start}`);
  return { name, codec, shape, start, end };
}

/** The arrays fill the file one after the other: no gap, no overlap, nothing beyond. */
function checkPlaces(entries: readonly Entry[], length: number): void {
  let at = 0;
  for (const { name, start, end } of [...entries].sort((a, b) => a.start - b.start || a.end - b.end)) {
    if (start !== at) fail(`${name}: expected its numbers at byte ${at}, got ${start}`);
    at = end;
  }
  if (at !== length) fail(`expected ${at} bytes of numbers, got ${length}`);
}

function strings(fact: unknown): [string, string][] {
  const entries = isObject(fact) ? Object.entries(fact) : fail("expected __metadata__ to be an object");
  return entries.map(([key, value]) => [key, typeof value === "string" ? value : fail(`${key}: expected a string`)]);
}

function isObject(x: unknown): x is object {
  return typeof x === "object" && x !== null && !Array.isArray(x);
}

function isLengths(x: unknown): x is number[] {
  return Array.isArray(x) && x.length <= 16 && x.every((n) => Number.isSafeInteger(n) && n >= 0);
}

// --- the numbers -----------------------------------------------------------------------------------------------------

function aligned(bytes: Uint8Array, width: number): [ArrayBuffer, number, number] {
  const at = bytes.byteOffset % width === 0 ? bytes : bytes.slice();
  return [at.buffer as ArrayBuffer, at.byteOffset, at.byteLength / width];
}

function narrow(wide: BigInt64Array, name: string): Int32Array {
  const made = new Int32Array(wide.length);
  wide.forEach((x, i) => {
    made[i] = Number(x);
    if (BigInt(made[i]!) !== x) fail(`${name}: expected whole numbers of 32 bits, got ${x}`);
  });
  return made;
}

function short(x: unknown): string {
  return (JSON.stringify(x) ?? "nothing").slice(0, 60);
}

function fail(what: string): never {
  // Names come from the file: whatever they hold, the message is one line.
  throw new Error(`safetensors: ${what.replace(/[\s\p{C}]+/gu, " ").slice(0, 200)}; ${AGAIN}`);
}
