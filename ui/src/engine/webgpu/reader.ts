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
/** What the trial with each network said. A device that failed is not asked again. */
const tried = new WeakMap<object, Measured>();

/** Never rejects. `always` leaves the choice out, for tests. */
export async function reader(decoding: Decoding, room: number, always = false): Promise<Reader> {
  const wasm = (measured: Measured): Reader => ({ measured, read: (past, ids) => decoding.read(past, ids) });
  if (decoding.isEdited) return wasm({ webgpu: null, wasm: null, why: "edits" });
  const known = tried.get(decoding.plan), measured = known ?? { webgpu: null, wasm: null, why: null };
  tried.set(decoding.plan, measured);
  try {
    if (!known) await compare(measured, decoding, always);
    if (measured.why === null && (always || measured.webgpu! < measured.wasm!)) {
      return new Reading(decoding, new Program(await (opened ??= adapter()), decoding, decoding.growing, room), measured);
    }
  } catch (error) {
    measured.why = said(error);
  }
  return wasm(measured);
}

/** Times a token both ways. Only a device that wins keeps the weights. */
async function compare(measured: Measured, decoding: Decoding, always: boolean): Promise<void> {
  const device = await (opened ??= adapter()), { growing } = decoding;
  measured.wasm = await quickest(() => Promise.resolve(decoding.read(NOTHING, [0])));
  const end = growing.findIndex((op) => op.out.includes(".blocks.1.")), blocks = new Set(growing.map((op) => /\.blocks\.\d+\./.exec(op.out)?.[0])).size - 1;
  if (end > 0 && !always) measured.webgpu = blocks * (await timed(device, decoding, growing.slice(0, end)));
  if ((measured.webgpu ?? 0) < HOPELESS * measured.wasm || always) measured.webgpu = await timed(device, decoding, growing);
  if (measured.webgpu! < measured.wasm || always) return;
  opened = null;
  device.gpu.destroy();
}

async function timed(device: Device, decoding: Decoding, ops: readonly Op[]): Promise<number> {
  const program = new Program(device, decoding, ops, 1);
  try {
    return await quickest(() => program.read(0, [0]));
  } finally {
    program.destroy();
  }
}

async function adapter(): Promise<Device> {
  const found = await navigator.gpu?.requestAdapter();
  if (!found) throw new Error("no adapter");
  const { maxBufferSize, maxStorageBufferBindingSize } = found.limits;
  const gpu = await found.requestDevice({ requiredLimits: { maxBufferSize, maxStorageBufferBindingSize } });
  return new Device(gpu);
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
