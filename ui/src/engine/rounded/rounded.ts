/** A matrix whose numbers are rounded to 8 or 4 bits: W = s n, with one scale a row or one for 32 numbers of it. */

import type { Floats } from "../../core/tensor";
import { dotRows, rows, type Rows } from "../products";
import { GROUP, type Bits } from "./kernels";
import { TILE, type Memory, type Placed } from "./memory";

/** Numbers that a product takes at a time, by bits. */
const ALIGNED = { 8: 16, 4: GROUP };

export interface Packed { bits: Bits; bytes: Uint8Array; scales: Float32Array; step: number }

export class Rounded implements Floats {
  readonly #width: number;

  private constructor(
    readonly shape: number[],
    private readonly bits: Bits,
    private readonly bytes: () => Uint8Array,
    private readonly scales: Float32Array,
    private readonly memory: Memory | null,
    private readonly placed: Placed | null,
  ) {
    this.#width = padded(shape[1]!, bits);
  }

  /** `bytes` are the integers, row by row: signed bytes, or two numbers in each, plus 8, rows padded to groups; as
   *  clearhead/model/fast/int8.py and grouped.py round them. Without a memory the products are those of JavaScript. */
  static of(shape: readonly number[], bits: Bits, bytes: Uint8Array, scales: Float32Array, memory: Memory | null): Rounded {
    const [n, width] = shape as [number, number], step = bits === 8 ? padded(width, 8) : padded(width, 4) / 2;
    let own = bytes;
    if (bytes.length !== n * step) {
      own = new Uint8Array(n * step);
      for (let i = 0; i < n; i++) own.set(bytes.subarray(i * width, (i + 1) * width), i * step);
    }
    if (!memory) return new Rounded([n, width], bits, () => own, scales, null, null);
    const weights = memory.put(own), place = memory.put(new Uint8Array(scales.buffer, scales.byteOffset, scales.byteLength));
    const placed = { bits, weights, scales: place, step, scaleStep: (4 * scales.length) / n };
    // A copy: `scales` may be a few numbers of a part of the file, which would stay.
    return new Rounded([n, width], bits, () => memory.view(weights, n * step), scales.slice(), memory, placed);
  }

  /** The integers, row by row, each row `step` bytes after the one before; valid until the memory grows. */
  get packed(): Packed {
    return { bits: this.bits, bytes: this.bytes(), scales: this.scales, step: this.bits === 8 ? this.#width : this.#width / 2 };
  }

  /** The same with sums in float64. */
  exactly(): Rounded {
    return new Rounded(this.shape, this.bits, this.bytes, this.scales, null, null);
  }

  /** All numbers, computed anew. */
  get data(): Float32Array<ArrayBuffer> {
    return this.#restored(0, this.shape[0]!);
  }

  row(i: number): Float32Array {
    return this.#restored(i, 1);
  }

  /** out[i, j] = x[i] . W[j, from : from + width] + bias[j] for `n` rows of x. */
  product(out: Rows, x: Rows, n: number, from: number, width: number, bias?: Float32Array): void {
    const m = this.shape[0]!, { memory, placed, bits } = this, unit = ALIGNED[bits];
    const isWhole = from % unit === 0 && (width % unit === 0 || from + width === this.shape[1]);
    if (!memory || !placed || !isWhole) return this.#plain(out, x, n, from, width, bias);
    const here = { ...placed, weights: placed.weights + (bits === 8 ? from : from / 2), scales: placed.scales + (bits === 8 ? 0 : (4 * from) / GROUP) };
    const wide = padded(width, bits);
    memory.multiply(here, n, m, wide, (to) => {
      for (let i = 0; i < n; i++) copied(to, i * wide, x.data, x.start + i * x.step, width, wide, bits);
    }, (found, first, count) => {
      for (let i = 0; i < n; i++) {
        const at = out.start + i * out.step + first;
        for (let j = 0; j < count; j++) out.data[at + j] = found[i * TILE + j]! + (bias ? bias[first + j]! : 0);
      }
    });
  }

  #plain(out: Rows, x: Rows, n: number, from: number, width: number, bias?: Float32Array): void {
    const m = this.shape[0]!, whole = this.shape[1]!;
    for (let j = 0; j < m; j += TILE) {
      const count = Math.min(TILE, m - j), w = rows(this.#restored(j, count), whole, from);
      dotRows({ ...out, start: out.start + j }, x, w, n, count, width, bias?.subarray(j, j + count));
    }
  }

  #restored(first: number, count: number): Float32Array<ArrayBuffer> {
    const width = this.shape[1]!, bytes = this.bytes(), out = new Float32Array(count * width);
    const step = this.bits === 8 ? this.#width : this.#width / 2, groups = this.#width / GROUP;
    for (let i = 0, at = 0; i < count; i++) {
      const start = (first + i) * step;
      for (let k = 0; k < width; k++, at++) {
        out[at] = this.bits === 8
          ? ((bytes[start + k]! << 24) >> 24) * this.scales[first + i]!
          : (((bytes[start + (k >> 1)]! >> (k & 1 ? 4 : 0)) & 15) - 8) * this.scales[(first + i) * groups + (k >> 5)]!;
      }
    }
    return out;
  }
}

function padded(width: number, bits: Bits): number {
  return Math.ceil(width / ALIGNED[bits]) * ALIGNED[bits];
}

/** A row of floats, zeros behind it; for four bits the even ones of each group first. */
function copied(to: Float32Array, at: number, x: Float32Array, start: number, width: number, wide: number, bits: Bits): void {
  if (bits === 8) {
    to.set(x.subarray(start, start + width), at);
    to.fill(0, at + width, at + wide);
    return;
  }
  for (let k = 0; k < wide; k++) to[at + (k & ~31) + (k & 1 ? 16 : 0) + ((k & 31) >> 1)] = k < width ? x[start + k]! : 0;
}
