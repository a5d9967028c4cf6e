/** A decoder's steps on a device: every op of a step in one submission, of whose values only the last one comes back. */

import type { Tensor } from "../../core/host";
import type { Op } from "../../core/protocol";
import type { Floats } from "../../core/tensor";
import type { Decoding } from "../decoding";
import type { Packed } from "../rounded/rounded";
import { fail, hasKernel, kernelOf } from "./kernels";
import { counted, keep, turned, type Kernel, type Shape, type Weight } from "./shaders";

/** Positions that are read at once: a longer prompt is read in several steps. */
const ROWS = 32;
const { STORAGE, UNIFORM, COPY_SRC, COPY_DST, MAP_READ } = { STORAGE: 0x80, UNIFORM: 0x40, COPY_SRC: 4, COPY_DST: 8, MAP_READ: 1 };
const REFUSALS = ["validation", "out-of-memory", "internal"] as const;

/** A device with the weights that it holds. */
export class Device {
  readonly #weights = new Map<unknown, GPUBuffer>();
  readonly #pipelines = new Map<string, GPUComputePipeline>();
  readonly #layouts: GPUBindGroupLayout[] = [];

  constructor(readonly gpu: GPUDevice) {}

  buffer(size: number, usage: number): GPUBuffer {
    return this.gpu.createBuffer({ size: Math.max(4 * Math.ceil(size / 4), 16), usage });
  }

  put(to: GPUBuffer, data: Uint8Array | Float32Array | Uint32Array): void {
    this.gpu.queue.writeBuffer(to, 0, data.buffer as ArrayBuffer, data.byteOffset, data.byteLength);
  }

  /** Uploads numbers once, those of a matrix with `m` rows turned; `of` says which they are. */
  held(of: unknown, numbers: Uint8Array | Float32Array, m: number): GPUBuffer {
    let found = this.#weights.get(of);
    if (!found) {
      this.#weights.set(of, (found = this.buffer(numbers.byteLength, STORAGE | COPY_DST)));
      this.put(found, numbers);
      if (m < numbers.byteLength / 4) this.#weights.set(of, (found = this.#turned(found, m, numbers.byteLength / 4 / m)));
    }
    return found;
  }

  #turned(from: GPUBuffer, m: number, words: number): GPUBuffer {
    const to = this.buffer(from.size, STORAGE), none = this.buffer(12, UNIFORM), { code, groups } = turned(m, words);
    const encoder = this.gpu.createCommandEncoder(), pass = encoder.beginComputePass();
    pass.setPipeline(this.pipeline(code, 1));
    pass.setBindGroup(0, this.bound([none, to, from]));
    pass.dispatchWorkgroups(...groups(1, 1));
    pass.end();
    this.gpu.queue.submit([encoder.finish()]);
    from.destroy();
    return to;
  }

  /** What a kernel reads and writes: the numbers of positions, its output, its inputs. */
  bound(buffers: readonly GPUBuffer[]): GPUBindGroup {
    const entries = buffers.map((buffer, binding) => ({ binding, resource: { buffer } }));
    return this.gpu.createBindGroup({ layout: this.#layout(buffers.length - 2), entries });
  }

  pipeline(code: string, inputs: number): GPUComputePipeline {
    let found = this.#pipelines.get(code);
    if (!found) {
      const layout = this.gpu.createPipelineLayout({ bindGroupLayouts: [this.#layout(inputs)] });
      this.#pipelines.set(code, (found = this.gpu.createComputePipeline({ layout, compute: { module: this.gpu.createShaderModule({ code }), entryPoint: "main" } })));
    }
    return found;
  }

  #layout(inputs: number): GPUBindGroupLayout {
    return (this.#layouts[inputs] ??= this.gpu.createBindGroupLayout({
      entries: (["uniform", "storage", ...new Array<"read-only-storage">(inputs).fill("read-only-storage")] as const).map((type, binding) => ({ binding, visibility: 4, buffer: { type } })),
    }));
  }
}

/** A value: where it lies, and whether it is a memory of keys or values, or comes from the processor. */
interface Value { buffer: GPUBuffer; shape: Shape; isMemory?: true; isGiven?: true }
interface Step { pipeline: GPUComputePipeline; group: GPUBindGroup; groups: Kernel["groups"] }
/** What the processor computes before a step. */
interface Host { op: Op; buffer: GPUBuffer }

export class Program {
  readonly #values = new Map<string, Value>();
  readonly #steps: (Step | { from: Value; to: Value })[] = [];
  readonly #hosts: Host[] = [];
  readonly #turns = new Map<string, { op: Op; buffer: GPUBuffer }>();
  readonly #uniform: GPUBuffer;
  readonly #own: GPUBuffer[] = [];
  readonly #last: Value;
  readonly #landing: GPUBuffer;
  /** By size, buffers whose values nothing reads any more. */
  readonly #free = new Map<number, GPUBuffer[]>();

  /** `room` is the number of positions that there will be at most. Throws for an op that has no kernel. */
  constructor(private readonly device: Device, private readonly decoding: Decoding, ops: readonly Op[], private readonly room: number) {
    this.#uniform = this.#buffer(12, UNIFORM | COPY_DST);
    const ends = lastUses(ops);
    ops.forEach((op, i) => {
      this.#add(op);
      for (const name of ends.get(i) ?? []) this.#release(this.#values.get(name));
    });
    this.#last = this.#values.get(ops.at(-1)!.out)!;
    this.#landing = this.#buffer(this.#bytes(this.#last.shape), COPY_DST | MAP_READ);
  }

  destroy(): void {
    for (const buffer of this.#own) buffer.destroy();
  }

  /** Reads tokens at positions from `from` on: the last op's numbers for the last position. Rejects if the device is
   *  lost or refuses anything. */
  async read(from: number, ids: readonly number[]): Promise<Float32Array> {
    const { gpu } = this.device, { shape } = this.#last;
    for (const kind of REFUSALS) gpu.pushErrorScope(kind);
    for (let i = 0; i < ids.length; i += ROWS) this.#submit(from + i, ids.slice(i, i + ROWS), i + ROWS >= ids.length);
    const bytes = 4 * counted(shape.map((one) => (one === "n" ? 1 : one)), 1, 1), encoder = gpu.createCommandEncoder();
    encoder.copyBufferToBuffer(this.#last.buffer, 0, this.#landing, 0, bytes);
    gpu.queue.submit([encoder.finish()]);
    const [, ...errors] = await Promise.all([this.#landing.mapAsync(MAP_READ, 0, bytes), ...REFUSALS.map(() => gpu.popErrorScope())]);
    const refusal = errors.find(Boolean);
    if (refusal) throw new Error(refusal.message);
    const found = new Float32Array(this.#landing.getMappedRange(0, bytes)).slice();
    this.#landing.unmap();
    return found;
  }

  #submit(from: number, ids: readonly number[], isLast: boolean): void {
    const { device } = this, n = ids.length, l = from + n, values = this.decoding.begun(from, ids);
    device.put(this.#uniform, Uint32Array.of(n, l, from));
    for (const { op, buffer } of this.#hosts) {
      const value = this.decoding.value(op, values, from, l);
      values.set(op.out, value);
      device.put(buffer, value.data);
    }
    for (const { op, buffer } of this.#turns.values()) device.put(buffer, turns(op, from, n));
    const encoder = device.gpu.createCommandEncoder();
    let pass: GPUComputePassEncoder | null = null;
    for (const step of this.#steps) {
      if ("from" in step) {
        if (!isLast) break;
        pass?.end();
        pass = null;
        const width = this.#bytes(step.to.shape);
        encoder.copyBufferToBuffer(step.from.buffer, (n - 1) * width, step.to.buffer, 0, width);
        continue;
      }
      pass ??= encoder.beginComputePass();
      pass.setPipeline(step.pipeline);
      pass.setBindGroup(0, step.group);
      pass.dispatchWorkgroups(...step.groups(n, l));
    }
    pass?.end();
    device.gpu.queue.submit([encoder.finish()]);
  }

  // --- what a step is made of ---

  #release(value: Value | undefined): void {
    if (!value || value.isMemory || value.isGiven) return;
    const bytes = this.#bytes(value.shape);
    this.#free.set(bytes, [...(this.#free.get(bytes) ?? []), value.buffer]);
  }

  #add(op: Op): void {
    if (!hasKernel(op) && op.op !== "copy") return this.#onHost(op);
    const x = (op.inputs ?? []).map((name) => (op.op === "rotate" && name === op.inputs![1] ? this.#turn(op) : this.#input(op, name)));
    const given = op.out.startsWith("head.") ? x.map((value) => this.#lastRow(value)) : x;
    const isKept = this.decoding.kept.has(op.out), made = op.op === "copy" ? given[0]! : this.#computed(op, given);
    if (isKept && op.op !== "copy") this.#release(made);
    this.#values.set(op.out, isKept ? this.#remembered(made) : made);
  }

  #computed(op: Op, given: readonly Value[]): Value {
    const w = this.decoding.weightsOf(op).map((tensor) => this.#weight(tensor)), isMemory = given[1]?.isMemory && op.op.startsWith("matmul");
    if (given.some((value, i) => value.isMemory && !(i === 1 && isMemory))) fail(op, "reads a memory");
    const kernel = kernelOf({
      op, x: given.map(({ shape }) => shape), w: w.map(({ fact }) => fact), masks: this.decoding.plan.masks, ...(isMemory ? { room: this.room } : {}),
    });
    return this.#run(kernel, [...given.map(({ buffer }) => buffer), ...w.flatMap(({ buffers }) => buffers)]);
  }

  /** A memory of all positions, to which a step adds its own. */
  #remembered({ shape, buffer }: Value): Value {
    const memory = this.#buffer(4 * counted(shape, this.room, this.room), STORAGE);
    return { ...this.#run(keep(shape, this.room), [buffer], memory), isMemory: true };
  }

  #run(kernel: Kernel, inputs: readonly GPUBuffer[], to?: GPUBuffer): Value {
    const { device } = this, bytes = this.#bytes(kernel.shape);
    const buffer = to ?? this.#free.get(bytes)?.pop() ?? this.#buffer(bytes, STORAGE | COPY_SRC | COPY_DST);
    this.#steps.push({ pipeline: device.pipeline(kernel.code, inputs.length), group: device.bound([this.#uniform, buffer, ...inputs]), groups: kernel.groups });
    return { buffer, shape: kernel.shape };
  }

  /** An op that depends on the tokens and their positions alone. */
  #onHost(op: Op): void {
    const values = this.decoding.begun(0, [0]);
    for (const { op: before } of this.#hosts) values.set(before.out, this.decoding.value(before, values, 0, 1));
    if ((op.inputs ?? []).some((name) => this.#values.has(name) && !values.has(name))) fail(op, "no kernel");
    const { shape } = this.decoding.value(op, values, 0, 1), grown: Shape = shape.length === 3 ? [shape[0]!, "n", "l"] : ["n", ...shape.slice(1)];
    const buffer = this.#buffer(this.#bytes(grown), STORAGE | COPY_SRC | COPY_DST);
    this.#hosts.push({ op, buffer });
    this.#values.set(op.out, { buffer, shape: grown, isGiven: true });
  }

  #input(op: Op, name: string): Value {
    const fixed = this.decoding.fixed.get(name);
    if (fixed) return { buffer: this.#put(fixed.data as Float32Array), shape: fixed.shape };
    return this.#values.get(name) ?? fail(op, `needs ${name}`);
  }

  #put(data: Float32Array): GPUBuffer {
    const buffer = this.#buffer(data.byteLength, STORAGE | COPY_DST | COPY_SRC);
    this.device.put(buffer, data);
    return buffer;
  }

  /** Cosines and sines of every angle of a position, the same for all ops with these frequencies. */
  #turn(op: Op): Value {
    const key = JSON.stringify([op.numbers, op.by]), width = 2 * (op.numbers?.length ?? 0);
    let found = this.#turns.get(key);
    if (!found) this.#turns.set(key, (found = { op, buffer: this.#buffer(4 * ROWS * width, STORAGE | COPY_DST) }));
    return { buffer: found.buffer, shape: ["n", width] };
  }

  #lastRow(value: Value): Value {
    if (value.shape[0] !== "n") return value;
    const to: Value = { shape: [1, ...value.shape.slice(1)], buffer: this.#buffer(this.#bytes(value.shape) / ROWS, STORAGE | COPY_DST | COPY_SRC) };
    this.#steps.push({ from: value, to });
    return to;
  }

  #weight(tensor: Tensor): { fact: Weight; buffers: GPUBuffer[] } {
    const packed = (tensor as { packed?: Packed }).packed, { shape } = tensor, m = shape[0]!;
    if (!packed) return { fact: { shape, bits: 32 }, buffers: [this.device.held(tensor.data, (tensor as Floats).data, m)] };
    return { fact: { shape, bits: packed.bits }, buffers: [this.device.held(tensor, packed.bytes, m), this.device.held(packed.scales, packed.scales, m)] };
  }

  #bytes(shape: Shape): number {
    return 4 * counted(shape, ROWS, this.room);
  }

  #buffer(bytes: number, usage: number): GPUBuffer {
    return this.#own[this.#own.push(this.device.buffer(bytes, usage)) - 1]!;
  }
}

/** By the number of an op, the values that it is the last one to read. A copy is what it copies. */
function lastUses(ops: readonly Op[]): Map<number, string[]> {
  const last = new Map<string, number>(), ends = new Map<number, string[]>(), copies = new Set<string>();
  for (let i = ops.length - 1; i >= 0; i--) {
    const { op, inputs = [], out } = ops[i]!, until = op === "copy" ? (last.get(out) ?? i) : i;
    if (op === "copy") copies.add(out);
    for (const name of inputs) last.set(name, Math.max(last.get(name) ?? 0, until));
  }
  for (const [name, i] of last) if (!copies.has(name) && name !== ops.at(-1)!.out) ends.set(i, [...(ends.get(i) ?? []), name]);
  return ends;
}

/** The cosines of each position's angles, then the sines, as the op `rotate` has them. */
function turns(op: Op, from: number, n: number): Float32Array {
  const { numbers = [], by } = op, made = new Float32Array(2 * n * numbers.length);
  for (let t = 0, at = 0; t < n; t++, at += 2 * numbers.length) {
    numbers.forEach((frequency, j) => {
      const angle = Math.fround((from + t) * Math.fround(frequency)), by_ = by!.magnitude!;
      made[at + j] = Math.cos(angle) * by_;
      made[at + numbers.length + j] = Math.sin(angle) * by_;
    });
  }
  return made;
}
