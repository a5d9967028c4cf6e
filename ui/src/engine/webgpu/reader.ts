/** Reads with WebGPU where that is quicker than WebAssembly, as a trial with the network itself says, and goes on with
 *  WebAssembly from the same tokens where anything fails. */

import type { Op } from "../../core/protocol";
import type { Decoding, Measured, Past, Read, Reader } from "../decoding";
import { Device, Program } from "./program";

/** This script is small because it brings none of the page's: it gets the decoding itself. */
const NOTHING: Past = { length: 0, kept: new Map() };
const TRIALS = 3;
/** How many times slower a first block may be than all of WebAssembly's step before the rest is not tried. */
const HOPELESS = 2;

let opened: Promise<Device> | null = null;

/** Never rejects. `always` leaves the choice out, for tests. */
export async function reader(decoding: Decoding, room: number, always = false): Promise<Reader> {
  const measured: Measured = { webgpu: null, wasm: null, why: null };
  let program: Program | null = null;
  try {
    if (decoding.isEdited) throw new Error("edits");
    const device = await (opened ??= adapter());
    measured.wasm = await quickest(() => Promise.resolve(decoding.read(NOTHING, [0])));
    if (!always) measured.webgpu = await ofBlocks(device, decoding);
    if ((measured.webgpu ?? 0) < HOPELESS * measured.wasm) {
      const whole = (program = new Program(device, decoding, decoding.growing, room));
      measured.webgpu = await quickest(() => whole.read(0, [0]));
      if (always || measured.webgpu < measured.wasm) return new Reading(decoding, whole, measured);
    }
  } catch (error) {
    measured.why = said(error);
  }
  program?.destroy();
  return { measured, read: (past, ids) => decoding.read(past, ids) };
}

async function adapter(): Promise<Device> {
  const found = await navigator.gpu?.requestAdapter();
  if (!found) throw new Error("no adapter");
  const { maxBufferSize, maxStorageBufferBindingSize } = found.limits;
  const gpu = await found.requestDevice({ requiredLimits: { maxBufferSize, maxStorageBufferBindingSize } });
  void gpu.lost.then(() => (opened = null));
  return new Device(gpu);
}

/** What all blocks would take, from the first one alone. */
async function ofBlocks(device: Device, decoding: Decoding): Promise<number> {
  const { growing } = decoding, inBlock = (op: Op, i: number): boolean => op.out.includes(`.blocks.${i}.`);
  const end = growing.findIndex((op) => inBlock(op, 1)), blocks = new Set(growing.map((op) => /\.blocks\.\d+\./.exec(op.out)?.[0])).size - 1;
  const program = new Program(device, decoding, growing.slice(0, end < 0 ? undefined : end), 1);
  try {
    return blocks * (await quickest(() => program.read(0, [0])));
  } finally {
    program.destroy();
  }
}

/** The milliseconds of the quickest of a few trials, after one that prepares. */
async function quickest(work: () => Promise<unknown>): Promise<number> {
  let least = Infinity;
  for (let i = 0; i <= TRIALS; i++) {
    const began = performance.now();
    await work();
    if (i > 0) least = Math.min(least, performance.now() - began);
  }
  return least;
}

function said(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

class Reading implements Reader {
  #program: Program | null;
  /** The tokens whose keys and values the device holds, and those of every past. */
  #held: readonly number[] = [];
  readonly #ids = new WeakMap<Past, readonly number[]>();

  constructor(private readonly decoding: Decoding, program: Program, readonly measured: Measured) {
    this.#program = program;
  }

  async read(past: Past, ids: readonly number[]): Promise<Read> {
    const before = past.length ? this.#ids.get(past) : [], all = [...(before ?? []), ...ids];
    if (!this.#program || !before) return before ? this.decoding.read(NOTHING, all) : this.decoding.read(past, ids);
    try {
      return await this.#onDevice(this.#program, all);
    } catch (error) {
      this.measured.why = said(error);
      this.end();
      return this.decoding.read(NOTHING, all);
    }
  }

  end(): void {
    this.#program?.destroy();
    this.#program = null;
  }

  async #onDevice(program: Program, all: readonly number[]): Promise<Read> {
    let from = 0;
    while (from < all.length - 1 && this.#held[from] === all[from]) from++;
    const logits = await program.read(from, all.slice(from));
    if (!logits.every(Number.isFinite)) throw new Error("NaN");
    const past: Past = { length: all.length, kept: new Map() };
    this.#held = all;
    this.#ids.set(past, all);
    return { logits, past };
  }
}
