/** Products of rows of floats with rows of rounded weights, in WebAssembly with vectors of 128 bits.
 *
 * Eight bits: y = s Σ n x. Four bits: y = Σ_g s_g Σ n x over groups of 32, whose 16 bytes hold two numbers each; the floats
 * of a group stand with those of the lower halves of the bytes first. Sums are float32, four and more at a time.
 */

import { assembled, I32, op, V128, type Code, type Func } from "./assembler";

/** Rows of floats that share one reading of the weights. */
export const TOGETHER = 4;
export const GROUP = 32;

export type Bits = 8 | 4;
/** All addresses and steps are in bytes; `width` is in bytes of weights. */
export type Kernel = (
  out: number, x: number, weights: number, scales: number, m: number,
  width: number, weightStep: number, scaleStep: number, xStep: number, outStep: number,
) => void;

const [OUT, X, WEIGHTS, SCALES, M, WIDTH, WEIGHT_STEP, SCALE_STEP, X_STEP, OUT_STEP] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] as const;
const AT = 10, END = 11, SCALE_AT = 12, TO = 13, FIRST_X = 14;
const PARAMS = 10;

export function nameOf(bits: Bits, rows: number): string {
  return `of${bits}by${rows}`;
}

/** One function for each number of bits, and for one row or several. */
export function kernels(): Uint8Array<ArrayBuffer> {
  return assembled(([8, 4] as const).flatMap((bits) => [1, TOGETHER].map((rows) => kernel(bits, rows))));
}

function kernel(bits: Bits, rows: number): Func {
  const each = Array.from({ length: rows }, (_, r) => r), perRow = rows === 1 ? 4 : 2;
  const vectors = FIRST_X + rows, sums = (r: number, i: number): number => vectors + r * perRow + (i % perRow);
  const totals = (r: number): number => vectors + rows * perRow + r, read = vectors + rows * perRow + rows, part = read + 1, wide = part + 1;
  const zero = (of: (r: number) => number[]): Code => each.flatMap((r) => of(r).flatMap((local) => [...op.zeros, ...op.set(local)]));
  const own = (r: number): number[] => Array.from({ length: perRow }, (_, i) => sums(r, i));

  // 16 signed bytes of `part`, by as many floats from an offset on.
  const block = (at: number): Code => [0, 1].flatMap((half) => [
    ...op.get(part), ...op.wider8(half), ...op.set(wide),
    ...[0, 1].flatMap((quarter) => {
      const i = 2 * half + quarter;
      return [
        ...op.get(wide), ...op.wider16(quarter), ...op.toFloats, ...op.set(wide + 1),
        ...each.flatMap((r) => [
          ...op.get(sums(r, i)), ...op.get(FIRST_X + r), ...op.load(at + 16 * i), ...op.get(wide + 1), ...op.times, ...op.plus, ...op.set(sums(r, i)),
        ]),
      ];
    }),
  ]);
  const added = (r: number): Code => own(r).flatMap((local, i) => [...op.get(local), ...(i ? op.plus : [])]);
  const centred = (code: Code): Code => [...op.get(read), ...code, ...op.bytes(8), ...op.subtractBytes, ...op.set(part)];
  const eight: Code = [...op.get(AT), ...op.load(0), ...op.set(part), ...block(0)];
  const four: Code = [
    ...op.get(AT), ...op.load(0), ...op.set(read), ...zero(own),
    ...centred([...op.bytes(15), ...op.and]), ...block(0),
    ...centred([...op.number(4), ...op.shiftBytes]), ...block(64),
    ...each.flatMap((r) => [...op.get(totals(r)), ...added(r), ...op.get(SCALE_AT), ...op.loadFloat, ...op.floats, ...op.times, ...op.plus, ...op.set(totals(r))]),
    ...moved(SCALE_AT, op.number(4)),
  ];
  const bytes = bits === 8 ? 64 : 128;
  const inner = op.loop([
    ...(bits === 8 ? eight : four),
    ...each.flatMap((r) => moved(FIRST_X + r, op.number(bytes))),
    ...moved(AT, op.number(16)), ...op.get(AT), ...op.get(END), ...op.isBelow, ...op.again,
  ]);
  const finished = (r: number): Code => [
    ...op.get(TO),
    ...(bits === 8 ? added(r) : op.get(totals(r))), ...op.set(read),
    ...[0, 1, 2, 3].flatMap((lane) => [...op.get(read), ...op.lane(lane), ...(lane ? op.addFloat : [])]),
    ...(bits === 8 ? [...op.get(SCALES), ...op.loadFloat, ...op.timesFloat] : []), ...op.storeFloat,
    ...moved(TO, op.get(OUT_STEP)),
  ];
  const body = op.loop([
    ...zero((r) => (bits === 8 ? own(r) : [totals(r)])),
    ...op.get(WEIGHTS), ...op.set(AT), ...op.get(WEIGHTS), ...op.get(WIDTH), ...op.add, ...op.set(END),
    ...op.get(SCALES), ...op.set(SCALE_AT), ...op.get(OUT), ...op.set(TO), ...op.get(X), ...op.set(FIRST_X),
    ...each.slice(1).flatMap((r) => [...op.get(FIRST_X + r - 1), ...op.get(X_STEP), ...op.add, ...op.set(FIRST_X + r)]),
    ...inner, ...each.flatMap(finished),
    ...moved(OUT, op.number(4)), ...moved(WEIGHTS, op.get(WEIGHT_STEP)), ...moved(SCALES, op.get(SCALE_STEP)),
    ...op.get(M), ...op.number(1), ...op.subtract, ...op.set(M), ...op.get(M), ...op.again,
  ]);
  const n = wide + 2 - vectors;
  return { name: nameOf(bits, rows), params: PARAMS, locals: [[vectors - PARAMS, I32], [n, V128]], body };
}

function moved(local: number, by: Code): Code {
  return [...op.get(local), ...by, ...op.add, ...op.set(local)];
}
