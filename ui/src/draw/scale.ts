/** Axes: from values to places, and where to write numbers. */

export interface Scale { (value: number): number; ticks: number[] }

const steps = [1, 2, 2.5, 5, 10];

/** About `count` round numbers from `low` to `high`. */
export function ticks(low: number, high: number, count: number): number[] {
  if (!(high > low)) return [low];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * (steps.find((s) => s * power >= 0.75 * rough) ?? 10);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

export function linearScale([low, high]: [number, number], [from, to]: [number, number], count = 4): Scale {
  const span = high - low || 1;
  const place = (value: number): number => from + ((value - low) / span) * (to - from);
  return Object.assign(place, { ticks: ticks(low, high, count) });
}

/** [smallest, largest] of what is finite; [0, 1] of nothing. */
export function extent(values: Iterable<number>): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [0, 1];
}

/** 12000 as "12k", 0.5 as "0.5". */
export function tick(value: number): string {
  const size = Math.abs(value);
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`.replace("-", "−");
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`.replace("-", "−");
  return String(Number(value.toPrecision(3))).replace("-", "−");
}
