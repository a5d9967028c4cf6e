/** Painting cells on a canvas. */
import { css, packed, type Hue, type Palette } from "./colours";
import type { Grid } from "./grid";

export type Kind = "share" | "signed";

export interface Look {
  kind: Kind;
  hue: Hue;
  /** Of a row: how strongly it is drawn, 0..1. */
  weight?: ((row: number) => number) | undefined;
  /** Without lines through cells: the colour alone tells the sign. */
  plain?: boolean | undefined;
}

/** From this size on (device pixels) a cell stands apart from its neighbours. */
const apart = 9;

/** The cells of a grid, filling width x height (device pixels). */
export function paintCells(ctx: CanvasRenderingContext2D, grid: Grid, look: Look, palette: Palette): void {
  const { width, height } = ctx.canvas;
  ctx.clearRect(0, 0, width, height);
  if (grid.rows === 0 || grid.cols === 0) return;
  ctx.imageSmoothingEnabled = false;
  ctx.drawImage(pixels(grid, look, palette), 0, 0, width, height);
  if (!look.plain) strikeThrough(ctx, grid, look, palette);
  separate(ctx, grid);
}

let scratch: HTMLCanvasElement | undefined;

/** Draws one pixel for each cell, on a canvas that the next picture reuses. */
function pixels(grid: Grid, { kind, hue, weight }: Look, palette: Palette): HTMLCanvasElement {
  const canvas = (scratch ??= document.createElement("canvas"));
  canvas.width = grid.cols;
  canvas.height = grid.rows;
  const ctx = canvas.getContext("2d")!;
  const image = ctx.createImageData(grid.cols, grid.rows);
  const words = new Uint32Array(image.data.buffer);
  const scale = grid.top > 0 ? 1 / grid.top : 0;
  for (let r = 0, i = 0; r < grid.rows; r++) {
    const strength = scale * (weight?.(r) ?? 1);
    for (let c = 0; c < grid.cols; c++, i++) {
      const value = grid.at(r, c);
      if (Number.isNaN(value)) continue;
      const v = value * strength;
      words[i] = packed(kind === "signed" ? palette.signed(v, hue) : palette.sequential(v, hue));
    }
  }
  ctx.putImageData(image, 0, 0);
  return canvas;
}

/** A diagonal through every negative cell, the other one through every closed cell: signs and masks without colour. */
function strikeThrough(ctx: CanvasRenderingContext2D, grid: Grid, look: Look, palette: Palette): void {
  const [w, h] = [ctx.canvas.width / grid.cols, ctx.canvas.height / grid.rows];
  if (Math.min(w, h) < apart) return;
  const [negative, closed] = [new Path2D(), new Path2D()];
  for (let r = 0; r < grid.rows; r++) {
    for (let c = 0; c < grid.cols; c++) {
      const [x, y] = [c * w, r * h];
      const value = grid.at(r, c);
      if (Number.isNaN(value)) {
        closed.moveTo(x, y);
        closed.lineTo(x + w, y + h);
      } else if (value < 0 && look.kind === "signed") {
        negative.moveTo(x, y + h);
        negative.lineTo(x + w, y);
      }
    }
  }
  ctx.lineWidth = Math.max(0.5, Math.min(w, h) * 0.1);
  ctx.globalAlpha = 0.75;
  ctx.strokeStyle = css(palette.colours.pan);
  ctx.stroke(negative);
  ctx.strokeStyle = css(palette.colours.line);
  ctx.stroke(closed);
  ctx.globalAlpha = 1;
}

function separate(ctx: CanvasRenderingContext2D, grid: Grid): void {
  const { width, height } = ctx.canvas;
  const [w, h] = [width / grid.cols, height / grid.rows];
  const gap = Math.max(1, Math.round(Math.min(w, h) * 0.06));
  if (w >= apart) for (let c = 1; c <= grid.cols; c++) ctx.clearRect(Math.round(c * w) - gap, 0, gap, height);
  if (h >= apart) for (let r = 1; r <= grid.rows; r++) ctx.clearRect(0, Math.round(r * h) - gap, width, gap);
}

/** The same as bars, up and down from the middle of each row: negative ones are hollow. */
export function paintBars(ctx: CanvasRenderingContext2D, grid: Grid, { hue, weight }: Look, palette: Palette): void {
  const { width, height } = ctx.canvas, [w, h] = [width / grid.cols, height / grid.rows];
  ctx.clearRect(0, 0, width, height);
  const gap = w >= 4 ? Math.max(1, w * 0.16) : 0, scale = grid.top > 0 ? (h / 2 - 2) / grid.top : 0;
  for (let r = 0; r < grid.rows; r++) {
    const ground = Math.round((r + 0.5) * h);
    ctx.fillStyle = css(palette.colours.line);
    ctx.fillRect(0, ground, width, 1);
    for (let c = 0; c < grid.cols; c++) {
      const value = grid.at(r, c), high = Math.min(h / 2 - 2, Math.abs(value) * scale * (weight?.(r) ?? 1));
      if (!(high >= 0.7)) continue;
      ctx.fillStyle = ctx.strokeStyle = css(value < 0 ? palette.colours.neg : palette.sequential(0.75, hue));
      if (value > 0) ctx.fillRect(c * w + gap / 2, ground - high, w - gap, high);
      else if (w - gap < 5) ctx.fillRect(c * w + gap / 2, ground, w - gap, high);
      else {
        ctx.globalAlpha = 0.2;
        ctx.fillRect(c * w + gap / 2, ground, w - gap, high);
        ctx.globalAlpha = 1;
        ctx.strokeRect(c * w + gap / 2 + 0.75, ground + 0.75, w - gap - 1.5, Math.max(0.5, high - 1.5));
      }
    }
  }
}
