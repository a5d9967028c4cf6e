/** The picture of the overview: lanes as wide as the answer depends on them, curves of heads, dots of feed-forwards. */

import type { Palette, Rgb } from "../../draw/colours";
import { mix } from "../../draw/colours";
import { bottomOf, thickness, xIn, yOf, type Area } from "./layout";

/** A number as it was and as it is with the edits. */
export type Both = readonly [was: number, now: number];
export interface DrawnLane { area: Area; lane: number; asks: boolean; dim: boolean; at: (state: number) => Both; dots: (block: number) => Both }
export interface DrawnCurve { from: Point; to: Point; weight: number; moved: Both; off: boolean; marked: boolean; dim: boolean }
export interface Point { x: number; y: number }
export interface DrawnAnswer { from: number; to: number; x: number; share: Both; first: boolean }
export interface Scene {
  areas: Area[];
  blocks: { area: Area; block: number; open: boolean }[];
  lanes: DrawnLane[];
  curves: DrawnCurve[];
  answers: DrawnAnswer[];
  /** How much the largest dot moves. */
  dot: number;
  /** From the card, where it stands beside, to what it speaks of. */
  leader: { from: Point | null; to: Point } | null;
  /** From the picture to its patches. */
  threads: [Point, Point][];
}

/** A curve of which less of the answer moves is not seen. */
export const DRAWN = 0.004;

const rgba = (colour: Rgb, share: number): string => `rgb(${colour.map(Math.round).join(" ")} / ${Math.min(1, Math.max(0, share))})`;
const between = ([was, now]: Both, change: number): number => was + (now - was) * change;

/** `change` goes from 0, the run as it is, to 1, the run with the edits; `flow` is that of the lanes, which come later. */
export function paint(g: CanvasRenderingContext2D, { colours: c }: Palette, scale: number, scene: Scene, change: number, flow: number): void {
  g.setTransform(scale, 0, 0, scale, 0, 0);
  g.clearRect(0, 0, g.canvas.width, g.canvas.height);
  for (const { area, block, open } of scene.blocks) {
    const [x, end] = [xIn(area, block, 0), xIn(area, block, 1)];
    g.fillStyle = open ? rgba(c.acc, 0.1) : rgba(c.ink, block % 2 ? 0.018 : 0.04);
    g.beginPath();
    g.roundRect(x + 1, area.top - 26, Math.max(1, end - x - 2), bottomOf(area) - area.top + 52, 7);
    g.fill();
  }
  const [first, , band] = scene.areas;
  if (first && band) handOver(g, scene, first, band, c.K, flow);
  for (const [from, to] of scene.threads) {
    g.strokeStyle = rgba(c.K, 0.35);
    g.lineWidth = 1;
    stroke(g, from, to);
  }
  for (const lane of scene.lanes) drawLane(g, lane, c, flow);
  const strength = ({ moved, off }: DrawnCurve): number => (off ? moved[0] * (1 - change) : between(moved, change));
  for (const curve of [...scene.curves].sort((one, other) => strength(one) - strength(other))) drawCurve(g, curve, strength(curve), c, change);
  for (const { area, lane, dots, dim } of scene.lanes) {
    for (let block = 0; block < area.x.length - 1; block++) {
      const moved = between(dots(block), flow);
      if (moved < Math.max(0.01, scene.dot / 5)) continue;
      g.beginPath();
      g.arc(xIn(area, block, 0.88), yOf(area, lane), Math.min(1.6 + 8.5 * Math.sqrt(moved), area.gap * 0.42, (area.x[block + 1]! - area.x[block]!) * 0.45), 0, 7);
      g.fillStyle = rgba(c.V, dim ? 0.3 : 0.9);
      g.fill();
      g.lineWidth = 1.6;
      g.strokeStyle = rgba(c.bg, 1);
      g.stroke();
    }
  }
  for (const answer of scene.answers) drawAnswer(g, answer, c, change);
  if (scene.leader) {
    const { from, to } = scene.leader;
    g.setLineDash([2, 4]);
    g.strokeStyle = rgba(c.acc, 0.8);
    g.lineWidth = 1.4;
    if (from) stroke(g, from, to);
    g.setLineDash([]);
    g.beginPath();
    g.arc(to.x, to.y, 6, 0, 7);
    g.fillStyle = rgba(c.pan, 1);
    g.fill();
    g.lineWidth = 2.4;
    g.strokeStyle = rgba(c.acc, 1);
    g.stroke();
  }
}

function stroke(g: CanvasRenderingContext2D, from: Point, to: Point): void {
  const half = (from.x + to.x) / 2;
  g.beginPath();
  g.moveTo(from.x, from.y);
  g.bezierCurveTo(half, from.y, half, to.y, to.x, to.y);
  g.stroke();
}

type Colours = Palette["colours"];

/** The encoder's last states bend up to the band along which the decoder reads them. */
function handOver(g: CanvasRenderingContext2D, { lanes }: Scene, first: Area, band: Area, colour: Rgb, change: number): void {
  const end = first.x.length - 1, x0 = first.x[end]!, [x1, x2] = [band.x[0]!, band.x.at(-1)!];
  for (const { area, lane, at } of lanes) {
    if (area !== first) continue;
    const moved = between(at(end), change), y = yOf(band, lane);
    const fill = g.createLinearGradient(x0, 0, x2, 0);
    fill.addColorStop(0, rgba(colour, 0.3 + 0.5 * moved));
    fill.addColorStop(0.5, rgba(colour, 0.25 + 0.45 * moved));
    fill.addColorStop(1, rgba(colour, 0.06));
    g.strokeStyle = fill;
    g.lineWidth = Math.max(1.4, Math.min(thickness(first, moved), band.gap * 0.8));
    g.beginPath();
    g.moveTo(x0, yOf(first, lane));
    g.bezierCurveTo((x0 + x1) / 2, yOf(first, lane), (x0 + x1) / 2, y, x1, y);
    g.lineTo(x2, y);
    g.stroke();
  }
}

function ribbon(g: CanvasRenderingContext2D, { area, lane }: DrawnLane, thick: (state: number) => number): void {
  const y = yOf(area, lane), last = area.x.length - 1;
  const edge = (from: number, to: number, sign: number): void => {
    const step = Math.sign(to - from);
    for (let i = from; i !== to; i += step) {
      const [x0, x1] = [area.x[i]!, area.x[i + step]!], half = (x0 + x1) / 2, [y0, y1] = [thick(i), thick(i + step)].map((w) => y + (sign * w) / 2);
      g.bezierCurveTo(half, y0!, half, y1!, x1, y1!);
    }
  };
  g.beginPath();
  g.moveTo(area.x[0]!, y - thick(0) / 2);
  edge(0, last, -1);
  g.lineTo(area.x[last]!, y + thick(last) / 2);
  edge(last, 0, 1);
  g.closePath();
}

function drawLane(g: CanvasRenderingContext2D, lane: DrawnLane, c: Colours, change: number): void {
  const { area, at, asks, dim } = lane, [start, end] = [area.x[0]!, area.x.at(-1)!];
  if (change > 0.02 && area.x.some((_, i) => Math.abs(at(i)[0] - at(i)[1]) > 0.01)) {
    ribbon(g, lane, (i) => thickness(area, at(i)[0]));
    g.fillStyle = rgba(c.ink3, 0.16 * change);
    g.fill();
    g.strokeStyle = rgba(c.ink3, 0.6 * change);
    g.lineWidth = 1;
    g.stroke();
  }
  const fill = g.createLinearGradient(start, 0, end, 0);
  area.x.forEach((x, i) => {
    const moved = Math.sqrt(between(at(i), change)), whole = asks ? mix(c.Q, c.acc, i === area.x.length - 1 ? 0.75 : 0) : mix(c.ink3, c.K, Math.min(1, 0.35 + moved));
    fill.addColorStop((x - start) / (end - start || 1), rgba(whole, (dim ? 0.3 : 1) * (asks ? 0.45 + 0.5 * moved : 0.3 + 0.6 * moved)));
  });
  ribbon(g, lane, (i) => thickness(area, between(at(i), change)));
  g.fillStyle = fill;
  g.fill();
}

function drawCurve(g: CanvasRenderingContext2D, curve: DrawnCurve, moved: number, c: Colours, change: number): void {
  const { from, to, weight, off, marked, dim } = curve, ghost = off && change > 0.3;
  const strong = Math.min(1, 1.25 * Math.max(0, moved) ** 0.65);
  g.lineCap = "round";
  if (ghost) {
    g.setLineDash([5, 5]);
    g.strokeStyle = rgba(c.ink3, 0.9 * change);
    g.lineWidth = 1.6;
    stroke(g, from, to);
    g.setLineDash([]);
  }
  if (strong > 0.03) {
    const fill = g.createLinearGradient(from.x, from.y, to.x, to.y), share = (dim ? 0.15 : 1) * strong;
    fill.addColorStop(0, rgba(c.K, share));
    fill.addColorStop(1, rgba(c.acc, share));
    g.strokeStyle = fill;
    g.lineWidth = Math.max(1, 9 * weight * (marked ? 1 : 0.75));
    stroke(g, from, to);
  }
  g.lineCap = "butt";
}

/** The last lane becomes the answers: as thick as each is likely. */
function drawAnswer(g: CanvasRenderingContext2D, { from, to, x, share, first }: DrawnAnswer, c: Colours, change: number): void {
  const p = between(share, change), thick = Math.max(0.5, 17 * p), thin = Math.max(0.5, 4 * Math.sqrt(p)), [half, end] = [x + 26, x + 54];
  g.fillStyle = rgba(first ? c.acc : mix(c.acc, c.ink3, 0.4), 0.3 + 0.6 * Math.sqrt(p));
  g.beginPath();
  g.moveTo(x, from - thick);
  g.bezierCurveTo(half, from - thick, half, to - thin, end, to - thin);
  g.lineTo(end, to + thin);
  g.bezierCurveTo(half, to + thin, half, from + thick, x, from + thick);
  g.fill();
}

/** The curve under a point; null: none. */
export function curveAt(curves: readonly DrawnCurve[], { x, y }: Point): number | null {
  let best: number | null = null, least = 7;
  curves.forEach(({ from, to, moved }, i) => {
    if (moved[0] < DRAWN) return;
    for (let k = 0; k <= 1; k += 0.05) {
      const s = 3 * k * (1 - k), px = from.x * (1 - k) ** 3 + ((from.x + to.x) / 2) * s + to.x * k ** 3, py = from.y * ((1 - k) ** 3 + s * (1 - k)) + to.y * (k ** 3 + s * k);
      const far = Math.hypot(px - x, py - y);
      if (far < least) [best, least] = [i, far];
    }
  });
  return best;
}
