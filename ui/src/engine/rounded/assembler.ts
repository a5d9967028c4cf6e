/** Writes a WebAssembly module: as much of the binary format (W3C, WebAssembly Core 2.0, chapter 5) as products need. */

export type Code = number[];

export const I32 = 0x7f, V128 = 0x7b;

/** Instructions by their names; `at` is an offset in bytes. */
export const op = {
  get: (local: number): Code => [0x20, ...unsigned(local)],
  set: (local: number): Code => [0x21, ...unsigned(local)],
  number: (value: number): Code => [0x41, ...signed(value)],
  add: [0x6a], subtract: [0x6b], isBelow: [0x49],
  loadFloat: [0x2a, 2, 0],
  storeFloat: [0x38, 2, 0],
  timesFloat: [0x94], addFloat: [0x92],
  loop: (body: Code): Code => [0x03, 0x40, ...body, 0x0b],
  /** Back to the start of the innermost loop if the number on the stack is not 0. */
  again: [0x0d, 0],
  load: (at: number): Code => [...simd(0x00), 4, ...unsigned(at)],
  zeros: [...simd(0x0c), ...new Array<number>(16).fill(0)],
  bytes: (value: number): Code => [...op.number(value), ...simd(0x0f)],
  floats: simd(0x13),
  lane: (i: number): Code => [...simd(0x1f), i],
  and: simd(0x4e), shiftBytes: simd(0x6d), subtractBytes: simd(0x71),
  /** The lower (0) or the upper half (1) of integers as integers of twice as many bits. */
  wider8: (half: number): Code => simd(0x87 + half),
  wider16: (half: number): Code => simd(0xa7 + half),
  toFloats: simd(0xfa), plus: simd(0xe4), times: simd(0xe6),
};

export interface Func { name: string; params: number; locals: [count: number, type: number][]; body: Code }

/** A module of functions of i32 without results. Its memory is imported as `m.m`. */
export function assembled(functions: readonly Func[]): Uint8Array<ArrayBuffer> {
  const types = functions.map(({ params }) => [0x60, ...vector(new Array<Code>(params).fill([I32])), 0]);
  const bodies = functions.map(({ locals, body }) => sized([...vector(locals.map(([count, type]) => [...unsigned(count), type])), ...body, 0x0b]));
  return Uint8Array.from([
    0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
    ...section(1, types),
    ...section(2, [[...text("m"), ...text("m"), 2, 0, 1]]),
    ...section(3, functions.map((_, i) => unsigned(i))),
    ...section(7, functions.map(({ name }, i) => [...text(name), 0, ...unsigned(i)])),
    ...section(10, bodies),
  ]);
}

function simd(code: number): Code {
  return [0xfd, ...unsigned(code)];
}

function section(id: number, entries: readonly Code[]): Code {
  return [id, ...sized(vector(entries))];
}

function vector(entries: readonly Code[]): Code {
  return [...unsigned(entries.length), ...entries.flat()];
}

function sized(bytes: Code): Code {
  return [...unsigned(bytes.length), ...bytes];
}

function text(name: string): Code {
  return sized([...new TextEncoder().encode(name)]);
}

/** LEB128: seven bits a byte, the lowest first. */
function unsigned(value: number): Code {
  return value < 128 ? [value] : [(value & 127) | 128, ...unsigned(value >>> 7)];
}

function signed(value: number): Code {
  const isLast = value >= -64 && value < 64;
  return isLast ? [value & 127] : [(value & 127) | 128, ...signed(value >> 7)];
}
