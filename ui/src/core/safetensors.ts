/** The safetensors format: a length, a JSON header of that length, and the numbers (little-endian, row by row). */

import { brainToFloats, halvesToFloats } from "./half";
import type { Numbers, Tensor } from "./host";

export interface SafeFile {
  metadata: Record<string, string>;
  tensors: Map<string, Tensor>;
}

interface Fact { dtype: string; shape: number[]; data_offsets: [start: number, end: number] }
type Header = { __metadata__?: Record<string, string>; [name: string]: unknown };

/** The numbers of a dtype: a view where they start at a multiple of their width, else a copy. */
const READ: Record<string, (bytes: Uint8Array) => Numbers> = {
  F32: (bytes) => new Float32Array(...aligned(bytes, 4)),
  I32: (bytes) => new Int32Array(...aligned(bytes, 4)),
  U8: (bytes) => bytes,
  F16: (bytes) => halvesToFloats(new Uint16Array(...aligned(bytes, 2))),
  BF16: (bytes) => brainToFloats(new Uint16Array(...aligned(bytes, 2))),
  I64: (bytes) => Int32Array.from(new BigInt64Array(...aligned(bytes, 8)), Number),
};

/** The page reads what its own host wrote; a file that was cut or changed is refused by its gzip and its table of contents. */
export function readSafetensors(content: ArrayBuffer | Uint8Array): SafeFile {
  const bytes = content instanceof Uint8Array ? content : new Uint8Array(content);
  const begin = 8 + Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  const { __metadata__: metadata = {}, ...facts } = JSON.parse(new TextDecoder().decode(bytes.subarray(8, begin))) as Header;
  const tensors = new Map<string, Tensor>();
  for (const [name, { dtype, shape, data_offsets: [start, end] }] of Object.entries(facts as Record<string, Fact>)) {
    tensors.set(name, { shape, data: READ[dtype]!(bytes.subarray(begin + start, begin + end)) });
  }
  return { metadata, tensors };
}

function aligned(bytes: Uint8Array, width: number): [ArrayBuffer, number, number] {
  const at = bytes.byteOffset % width === 0 ? bytes : bytes.slice();
  return [at.buffer as ArrayBuffer, at.byteOffset, at.byteLength / width];
}
