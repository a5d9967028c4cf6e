/** A text under a tokenizer's rules: its characters, each with the stretch of the original text that it stands for. */

export interface Aligned { chars: string[]; from: number[]; to: number[] }

/** Whether a stretch of a text is one that a pattern looks for. */
export interface Stretch { start: number; end: number; hit: boolean }

export type Behavior = "Removed" | "Isolated" | "MergedWithPrevious" | "MergedWithNext" | "Contiguous";

/** `start` is the place of the first character. */
export function aligned(text: string, start = 0): Aligned {
  const chars = [...text], from = chars.map((_, i) => start + i);
  return { chars, from, to: from.map((i) => i + 1) };
}

export function slice({ chars, from, to }: Aligned, start: number, end?: number): Aligned {
  return { chars: chars.slice(start, end), from: from.slice(start, end), to: to.slice(start, end) };
}

/** Writes `made(i)` in place of the i-th character; what is new stands where that stood. */
export function mapped({ chars, from, to }: Aligned, made: (char: string, i: number) => Iterable<string>): Aligned {
  const out: Aligned = { chars: [], from: [], to: [] };
  chars.forEach((char, i) => {
    for (const one of made(char, i)) add(out, one, from[i]!, to[i]!);
  });
  return out;
}

export function add(out: Aligned, char: string, from: number, to: number): void {
  out.chars.push(char);
  out.from.push(from);
  out.to.push(to);
}

export function prepended(text: Aligned, start: string): Aligned {
  return mapped(text, (char, i) => (i ? [char] : [...start, char]));
}

/** The stretches that match, and those between them. */
export function found(text: Aligned, pattern: RegExp): Stretch[] {
  const whole = text.chars.join(""), places = placesOf(text.chars, whole.length), out: Stretch[] = [];
  let last = 0;
  for (const { index, 0: match } of whole.matchAll(pattern)) {
    const start = places(index), end = places(index + match.length);
    if (start > last) out.push({ start: last, end: start, hit: false });
    if (end > start) out.push({ start, end, hit: true });
    last = end;
  }
  if (last < text.chars.length) out.push({ start: last, end: text.chars.length, hit: false });
  return out;
}

/** The number of characters before a place in a string, whose characters have one or two units. */
function placesOf(chars: readonly string[], length: number): (at: number) => number {
  if (length === chars.length) return (at) => at;
  const places = new Int32Array(length + 1);
  let at = 0;
  chars.forEach((char, i) => {
    places[at] = i;
    at += char.length;
  });
  places[length] = chars.length;
  return (unit) => places[unit]!;
}

export function replaced(text: Aligned, pattern: RegExp, content: string): Aligned {
  const out: Aligned = { chars: [], from: [], to: [] };
  const whole = text.chars.join(""), places = placesOf(text.chars, whole.length);
  let last = 0;
  const keep = (end: number): void => {
    for (; last < end; last++) add(out, text.chars[last]!, text.from[last]!, text.to[last]!);
  };
  for (const { index, 0: match } of whole.matchAll(pattern)) {
    keep(places(index));
    last = places(index + match.length);
    const at = Math.max(last - 1, 0);
    for (const char of content) add(out, char, text.from[at] ?? 0, text.to[at] ?? 0);
  }
  keep(text.chars.length);
  return out;
}

/** Cuts a text at the stretches that were looked for. */
export function split(text: Aligned, stretches: readonly Stretch[], behavior: Behavior): Aligned[] {
  const backwards = behavior === "MergedWithNext", cuts: Stretch[] = [];
  let before = false;
  for (const { start, end, hit } of backwards ? [...stretches].reverse() : stretches) {
    const last = cuts.at(-1), joins = behavior === "Contiguous" ? hit === before : behavior.startsWith("Merged") && hit && !before;
    if (last && joins) backwards ? (last.start = start) : (last.end = end);
    else if (!(hit && behavior === "Removed")) cuts.push({ start, end, hit });
    before = hit;
  }
  return (backwards ? cuts.reverse() : cuts).map(({ start, end }) => slice(text, start, end));
}
