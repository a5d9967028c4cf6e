/** The picture of the overview: lanes as wide as the answer depends on them, curves of heads, dots of feed-forwards. */

import type { Palette, Rgb } from "../../draw/colours";
import { mix } from "../../draw/colours";
import { bottomOf, thickness, xIn, yOf, type Area } from "./layout";

/** A number as it was and as it is with the edits. */
export type Both = readonly [was: number, now: number];
/** Who reads does so in a block; what is read, and where the answer is made, have one colour each. */
export type Role = "asks" | "reads" | "read" | "other";
/** `own`: what the answer needs of it alone; the rest of `at` it has read. */
export interface DrawnLane { area: Area; lane: number; role: Role; hollow: boolean; since: number; dim: boolean; own: (state: number) => Both; at: (state: number) => Both }
/** What one lane gives another: from the encoder's end to the answer, as wide as the answer needs that word there, or in a block, by all of its heads. */
export interface DrawnJoin extends Line { thick: Both; share: Both; role: Role; dim: boolean; ends: boolean; within: boolean }
export interface DrawnCurve extends Line { weight: number; moved: Both; marked: boolean; feeds: boolean; dim: boolean }
/** What a feed-forward moves, at most so large. */
export interface DrawnDot extends Point { most: number; dim: boolean; moved: Both }
export interface Point { x: number; y: number }
/** `via`: where it goes round a label, from there on level until an x. */
export interface Line { from: Point; via?: Point & { until?: number }; to: Point }
export interface DrawnAnswer { from: number; to: number; x: number; half: number; share: Both; grey: number }
export interface Scene {
  areas: Area[];
  blocks: { area: Area; block: number; open: boolean }[];
  lanes: DrawnLane[];
  joins: DrawnJoin[];
  curves: DrawnCurve[];
  answers: DrawnAnswer[];
  dots: DrawnDot[];
}

/** A curve of which less of the answer moves is not seen, nor a dot. */
export const DRAWN = 0.015;

const rgba = (colour: Rgb, share: number): string => `rgb(${colour.map(Math.round).join(" ")} / ${Math.min(1, Math.max(0, share))})`;
const between = ([was, now]: Both, change: number): number => (change < 1 ? was + (now - was) * change : now);

/** `change` goes from 0, the run as it is, to 1, the run with the edits; `flow` is that of the lanes, which come later. */
export function paint(g: CanvasRenderingContext2D, { colours: c }: Palette, scale: number, scene: Scene, change: number, flow: number): void {
  g.setTransform(scale, 0, 0, scale, 0, 0);
  g.clearRect(0, 0, g.canvas.width, g.canvas.height);
  for (const { area, block, open } of scene.blocks) {
    const [x, end] = [xIn(area, block, 0), xIn(area, block, 1)];
    g.fillStyle = open ? rgba(c.acc, 0.1) : rgba(c.ink, 0.022);
    g.beginPath();
    g.roundRect(x + 1.5, area.top - 26, Math.max(1, end - x - 3), bottomOf(area) - area.top + 52, 8);
    g.fill();
  }
  for (const join of scene.joins) drawJoin(g, join, c, flow);
  for (const lane of [...scene.lanes].sort((one, other) => Number(one.role !== "other") - Number(other.role !== "other"))) drawLane(g, lane, c, flow);
  for (const curve of [...scene.curves].sort((one, other) => between(one.moved, change) - between(other.moved, change))) drawCurve(g, curve, c, change);
  for (const { x, y, most, dim, moved: both } of scene.dots) {
    const moved = between(both, flow);
    if (moved < DRAWN) continue;
    g.beginPath();
    g.arc(x, y, Math.min(1.6 + 8.5 * Math.sqrt(moved), most), 0, 7);
    [g.fillStyle, g.strokeStyle, g.lineWidth] = [rgba(c.V, dim ? 0.3 : 0.9), rgba(c.bg, 1), 1.6];
    g.fill();
    g.stroke();
  }
  for (const answer of scene.answers) drawAnswer(g, answer, c, change);
}

function stroke(g: CanvasRenderingContext2D, line: Line, dashes: number[] = []): void {
  g.setLineDash(dashes);
  g.beginPath();
  for (const { x, y } of Array.from({ length: 41 }, (_, i) => along(line, i / 40))) g.lineTo(x, y);
  g.stroke();
  g.setLineDash([]);
}

type Colours = Palette["colours"];

/** Of a lane at a state: brown what is read, blue who reads from then on, and the answer's colour where it is made. */
function colourOf({ role, since }: { role: Role; since: number }, state: number, states: number, c: Colours): Rgb {
  if (role === "asks") return since < 0 ? c.acc : mix(c.Q, c.acc, Math.max(0, (state - since) / Math.max(1, states - 1 - since)));
  return role === "read" && (since < 0 || state <= since) ? c.K : role === "reads" ? mix(c.ink3, c.Q, state > since ? 1 : 0.25) : mix(c.ink3, c.K, 0.4);
}

const strengthOf = (role: Role, moved: number): number => (role === "other" ? [0.24, 0.3] : [0.35, 0.6]).reduce((least, more) => least + more * Math.sqrt(Math.max(0, moved)));

/** A ribbon from one point to another, which leaves and comes in level. */
function sweep(g: CanvasRenderingContext2D, from: Point, to: Point, [before, after]: readonly [number, number]): void {
  const half = (from.x + to.x) / 2, lean = Math.max(-1, Math.min(1, (to.y - from.y) / (to.x - from.x))) * (before + after) / 2, [upper, lower] = [half + lean, half - lean]; // Steep ones are as thick as level ones.
  g.beginPath();
  g.moveTo(from.x, from.y - before);
  g.bezierCurveTo(upper, from.y - before, upper, to.y - after, to.x, to.y - after);
  g.lineTo(to.x, to.y + after);
  g.bezierCurveTo(lower, to.y + after, lower, from.y + before, from.x, from.y + before);
  g.fill();
}

function drawJoin(g: CanvasRenderingContext2D, join: DrawnJoin, c: Colours, change: number): void {
  const { from, via, to, thick, share, role, dim, ends, within } = join;
  const wide = between(thick, change) / 2, fill = g.createLinearGradient(from.x, 0, to.x, 0), strong = (dim ? 0.3 : within ? 0.7 : 1) * strengthOf(role, between(share, change));
  for (const at of [0, 0.2]) fill.addColorStop(at, rgba(colourOf({ role, since: -1 }, 1, 2, c), at || !within ? strong : 0));
  fill.addColorStop(0.75, rgba(role === "other" ? mix(c.ink3, c.K, 0.4) : within ? c.K : c.acc, strong * (role === "other" ? 0.7 : 1)));
  fill.addColorStop(1, rgba(c.acc, ends ? strong : 0));
  if (change > 0.3 && thick[0] >= 2.4 && thick[1] < 0.5) {
    [g.strokeStyle, g.lineWidth] = [rgba(c.ink3, 0.9 * change), 1.6];
    stroke(g, join, [5, 5]);
  }
  if (!wide) return;
  g.fillStyle = fill;
  if (via) sweep(g, from, via, [wide, wide]);
  sweep(g, via ?? from, to, ends ? [wide, Math.min(wide, 4)] : [wide, Math.max(0.5, wide * 0.7)]);
}

/** As thick as the measured states, from one to the next. */
function ribbon(g: CanvasRenderingContext2D, { area, lane }: DrawnLane, known: readonly number[], thick: (state: number) => number): void {
  const y = yOf(area, lane), back = [...known].reverse();
  const edge = (states: readonly number[], sign: number): void => states.forEach((i, k) => {
    const x = area.x[i]!, end = y + (sign * thick(i)) / 2, before = states[k - 1];
    if (before === undefined) return void g.lineTo(x, end);
    const half = (area.x[before]! + x) / 2;
    g.bezierCurveTo(half, y + (sign * thick(before)) / 2, half, end, x, end);
  });
  g.beginPath();
  edge(known, -1);
  edge(back, 1);
  g.closePath();
}

/** The measured states of a lane, at least two, else none. */
function knownOf({ area, at }: DrawnLane, change: number): number[] {
  const known = [...area.x.keys()].filter((i) => !isNaN(between(at(i), change)));
  return known[1] ? known : [];
}

function drawLane(g: CanvasRenderingContext2D, lane: DrawnLane, c: Colours, change: number): void {
  const { area, own, at, role, dim } = lane, [start, end] = [area.x[0]!, area.x.at(-1)!], n = area.x.length, known = knownOf(lane, change), last = known.at(-1) ?? 0;
  if (last < n - 1) {
    [g.strokeStyle, g.lineWidth] = [rgba(colourOf(lane, n - 1, n, c), dim ? 0.3 : 0.8), 1.6];
    stroke(g, { from: { x: area.x[last]!, y: yOf(area, lane.lane) }, to: { x: end, y: yOf(area, lane.lane) } }, [2, 6]);
  }
  if (!last) return;
  /** A colour for each state. */
  const shade = (of: (state: number) => string, states = known): CanvasGradient => {
    const fill = g.createLinearGradient(start, 0, end, 0);
    states.forEach((i) => fill.addColorStop((area.x[i]! - start) / (end - start || 1), of(i)));
    return fill;
  };
  /** Before: filled where it was more, and outlined where it was more or less. */
  const before = knownOf(lane, 0), was = (share: number, of: (x: number) => number): CanvasGradient => {
    ribbon(g, lane, before, (i) => thickness(area, at(i)[0]));
    return shade((i) => rgba(c.ink3, share * change * Math.max(0, Math.min(1, of(thickness(area, at(i)[0]) - thickness(area, at(i)[1])) - 2 || 0))), before);
  };
  if (change > 0.02) {
    g.fillStyle = was(0.16, (x) => x);
    g.fill();
  }
  const tint = (i: number): number => 1 - (between(own(i), change) || 0) / between(at(i), change) || 0;
  g.fillStyle = shade((i) => rgba(mix(colourOf(lane, i, n, c), c.K, tint(i)), (dim ? 0.3 : 1) * (role === "asks" ? 0.4 + (0.6 * i) / (n - 1) : 1) * (tint(i) / 4 + strengthOf(lane.hollow || (role === "read" && i > lane.since && lane.since >= 0) ? "other" : role, (area.scale ?? 1) * between(at(i), change)) * (lane.hollow ? 0.3 : 1))));
  ribbon(g, lane, known, (i) => thickness(area, between(at(i), change)));
  g.fill();
  if (change > 0.02) {
    [g.strokeStyle, g.lineWidth] = [was(0.6, Math.abs), 1];
    g.stroke();
  }
}

function drawCurve(g: CanvasRenderingContext2D, curve: DrawnCurve, c: Colours, change: number): void {
  const { from, to, weight, marked, feeds, dim } = curve, moved = between(curve.moved, change);
  const strong = Math.min(1, 1.25 * Math.max(0, moved) ** 0.65);
  [g.strokeStyle, g.lineWidth] = [rgba(c.ink3, 0.9 * change), 1.6];
  if (!dim && change > 0.3 && moved < DRAWN && curve.moved[0] >= DRAWN) stroke(g, curve, [5, 5]);
  if (moved >= DRAWN) {
    const fill = g.createLinearGradient(from.x, from.y, to.x, to.y), share = dim ? 0.1 * strong : Math.max(0.4, strong);
    for (const [at, colour, part] of [[0, c.K, 0.2], [0.12, c.K, 1], [0.35, c.K, 1], [0.88, feeds ? c.K : c.Q, 1], [1, feeds ? c.K : c.Q, 0.2]] as const) fill.addColorStop(at, rgba(colour, part * share));
    [g.strokeStyle, g.lineWidth] = [fill, Math.max(2, (marked ? 11 : 6) * weight)];
    stroke(g, curve);
  }
}

/** The last lane becomes the answers: as thick as each is likely. */
function drawAnswer(g: CanvasRenderingContext2D, { from, to, x, half, share, grey }: DrawnAnswer, c: Colours, change: number): void {
  const p = between(share, change);
  if (p < 0.02) return;
  const fill = g.createLinearGradient(x, 0, x + 54, 0), strong = 0.3 + 0.65 * Math.sqrt(p);
  fill.addColorStop(0, rgba(c.acc, 0.9 * strong));
  fill.addColorStop(1, rgba(mix(c.acc, c.ink3, grey), strong));
  g.fillStyle = fill;
  sweep(g, { x, y: from }, { x: x + 54, y: to }, [half * p, Math.min(4, half) * p]);
}

/** A point of a curve. */
export function along({ from, via, to }: Line, k: number): Point {
  if (via) return k < 0.5 ? along({ from, to: via }, 2 * k) : along({ from: { x: via.until ?? via.x, y: via.y }, to }, 2 * k - 1);
  const s = 3 * k * (1 - k), half = (from.x + to.x) / 2;
  return { x: from.x * (1 - k) ** 3 + half * s + to.x * k ** 3, y: from.y * ((1 - k) ** 3 + s * (1 - k)) + to.y * (k ** 3 + s * k) };
}

/** Where a curve goes round a label of the stack that it comes to, a thick one below all, and is level until the block that reads; none: it touches none, or, above all others, there is no room. */
export function around(curve: Line, area: Area, half = 0, until?: number): Pick<Line, "via"> {
  const x = area.x[0]! - 44, near = Array.from({ length: 41 }, (_, i) => along(curve, i / 40)).filter((at) => Math.abs(at.x - x) < 36);
  const lane = Array.from({ length: area.lanes }, (_, lane) => yOf(area, lane)).findIndex((y) => near.some((at) => Math.abs(at.y - y) < 15 + half)), y = yOf(area, lane), middle = near[near.length >> 1] ?? curve.from, level = until ? { until } : {};
  if (lane < Number(area.x[0]! - curve.from.x < 100)) return until ? { via: { x, y: middle.y, until } } : {};
  return { via: { x, y: half > area.gap / 4 ? bottomOf(area) + 14 + half : y + (!lane || middle.y > y ? 1 : -1) * Math.min(26, area.gap / 2), ...level } };
}
