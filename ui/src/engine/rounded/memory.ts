/** Memory of WebAssembly that holds rounded weights, and the products with them. */

import { kernels, nameOf, TOGETHER, type Bits, type Kernel } from "./kernels";

const PAGE = 65536;
/** Outputs that are computed for all rows before the next ones, so that their weights stay in the processor's cache. */
export const TILE = 128;

/** Where a matrix lies: `width` is in numbers, padded, and `step` in bytes from row to row. */
export interface Placed { bits: Bits; weights: number; scales: number; step: number; scaleStep: number }

export class Memory {
  readonly #memory = new WebAssembly.Memory({ initial: 1 });
  readonly #kernels: Record<string, Kernel>;
  #end = 0;
  #room = { at: 0, size: 0 };

  /** Throws where a browser has no vectors, or where the policy of a page forbids WebAssembly. */
  constructor() {
    const { exports } = new WebAssembly.Instance(new WebAssembly.Module(kernels()), { m: { m: this.#memory } });
    this.#kernels = exports as unknown as Record<string, Kernel>;
  }

  put(bytes: Uint8Array): number {
    const at = this.#reserve(bytes.length);
    this.view(at, bytes.length).set(bytes);
    return at;
  }

  /** Valid until something else is put. */
  view(at: number, length: number): Uint8Array<ArrayBuffer> {
    return new Uint8Array(this.#memory.buffer, at, length);
  }

  /** Multiplies `n` rows of floats, each `width` long, which `fill` writes, by the first `m` rows of a matrix. `take` gets
   *  the outputs of every row from `first` on, TILE apart. */
  multiply(
    placed: Placed, n: number, m: number, width: number,
    fill: (to: Float32Array) => void, take: (from: Float32Array, first: number, count: number) => void,
  ): void {
    const { bits, weights, scales, step, scaleStep } = placed, inputs = 4 * n * width, outputs = 4 * n * TILE;
    const at = this.#scratch(inputs + outputs), out = at + inputs, bytes = bits === 8 ? width : width / 2;
    const buffer = this.#memory.buffer, made = new Float32Array(buffer, out, n * TILE);
    fill(new Float32Array(buffer, at, n * width));
    for (let j = 0; j < m; j += TILE) {
      const count = Math.min(TILE, m - j);
      for (let i = 0; i < n; ) {
        const together = n - i >= TOGETHER ? TOGETHER : 1;
        this.#kernels[nameOf(bits, together)]!(
          out + 4 * i * TILE, at + 4 * i * width, weights + j * step, scales + j * scaleStep, count,
          bytes, step, scaleStep, 4 * width, 4 * TILE,
        );
        i += together;
      }
      take(made, j, count);
    }
  }

  #scratch(size: number): number {
    if (this.#room.size < size) this.#room = { at: this.#reserve(size), size };
    return this.#room.at;
  }

  #reserve(size: number): number {
    const at = this.#end;
    this.#end += Math.ceil(size / 16) * 16;
    const more = Math.ceil((this.#end - this.#memory.buffer.byteLength) / PAGE);
    if (more > 0) this.#memory.grow(more);
    return at;
  }
}
