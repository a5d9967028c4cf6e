/** Where the lanes, blocks and curves of the overview stand, in pixels. */

export interface Area {
  /** Of the states, from before the first block to after the last. */
  x: number[];
  top: number;
  gap: number;
  lanes: number;
  /** How many times as thick lanes are drawn. */
  scale?: number;
}
export interface Wanted { lanes: number; widths: number[] }

/** Between the last block and the answers. */
export const FAN = 56;
export const TOP = 52;
/** Below the lanes: what the model would say after each block. */
export const FOOT = 62;
const WIDEST = 140;

export const yOf = (area: Area, lane: number): number => area.top + area.gap * lane;
export const bottomOf = (area: Area): number => yOf(area, area.lanes - 1);
/** A place in a block, 0 to 1. */
export const xIn = ({ x }: Area, block: number, share: number): number => x[block]! + (x[block + 1]! - x[block]!) * share;

/** A block that is told of and one that is open take more room than others. */
export function widthsOf(n: number, open: number | null, told: number | null = null): number[] {
  return Array.from({ length: n }, (_, i) => (open !== null ? (i === open ? (n > 4 ? n * 0.5 : 2.2) : 0.7) : 1 + (n > 4 && i === told ? 0.2 * n : 0)));
}

function area(from: number, to: number, top: number, height: number, { lanes, widths }: Wanted): Area {
  const sum = widths.reduce((all, x) => all + x, 0) || 1, gap = Math.min(height / Math.max(1, lanes - 1), Math.max(WIDEST, height / 5));
  let x = from;
  return { x: [from, ...widths.map((w) => (x += ((to - from) * w) / sum))], top: top + Math.max(0, (height - gap * (lanes - 1)) / 2), gap: lanes > 1 ? gap : WIDEST, lanes };
}

/** One stack takes all of the room. Of two, the encoder takes the left, and the decoder the right, where its words stand between them. */
export function layout([first, second]: readonly Wanted[], width: number, height: number, left: number, end = FAN): Area[] {
  const right = width - end, top = TOP + (second ? 20 : 0), tall = Math.max(60, height - top - FOOT);
  if (!first) return [];
  if (!second) return [area(left, right, top, tall, first)];
  const between = Math.max(84, left), half = left + (right - left - between) * 0.5;
  return [area(left, half, top, tall + FOOT - 24, first), area(half + between, right, top, tall, second)];
}

/** How thick a lane is of which so much depends: 0 to 1. */
export function thickness(area: Area, moved: number): number {
  const most = Math.min(32, area.gap * (area.scale! > 2 ? 0.9 : 0.6));
  return Math.min(most, 1.6 + (most - 1.6) * Math.max(0, moved) * (area.scale ?? 1));
}

/** Which of many labels are written, so that they stand apart: every first, second, fifth …, those in `always`, and none too near to these. */
export function labelled(centres: readonly number[], room: number, always: readonly number[] = []): boolean[] {
  const least = Math.min(...centres.slice(1).map((x, i) => x - centres[i]!), Infinity);
  const step = [1, 2, 5, 10, 20].find((n) => n * least >= room) ?? 50;
  return centres.map((x, i) => always.includes(i) || (i % step === 0 && always.every((one) => Math.abs(centres[one]! - x) >= room)));
}

/** Which words of the lens are written: the last, and, going back, each where the word changes where there is room. */
export function changes(words: readonly string[], x: readonly number[], room: (word: string) => number): number[] {
  let free = Infinity;
  return [...words.keys()].reverse().filter((i) => {
    const half = room(words[i]!) / 2, isKept = (!i || i === words.length - 1 || words[i] !== words[i - 1]) && x[i]! + half <= free;
    if (isKept) free = x[i]! - half;
    return isKept;
  }).reverse();
}
