/** Painting cells on a canvas. */
import { css, packed, type Hue, type Palette } from "./colours";
import type { Grid, Region } from "./grid";

export type Kind = "share" | "signed";

export interface Look {
  kind: Kind;
  hue: Hue;
  /** Of a row: how strongly it is drawn, 0..1. */
  weight?: ((row: number) => number) | undefined;
}

/** From this size on (device pixels) a cell stands apart from its neighbours. */
const apart = 6;

/** The cells of `region`, filling width x height (device pixels). */
export function paintCells(ctx: CanvasRenderingContext2D, grid: Grid, region: Region, look: Look, palette: Palette): void {
  const { width, height } = ctx.canvas;
  ctx.clearRect(0, 0, width, height);
  if (region.rows === 0 || region.cols === 0) return;
  ctx.imageSmoothingEnabled = false;
  ctx.drawImage(pixels(grid, region, look, palette), 0, 0, width, height);
  strikeThrough(ctx, grid, region, look, palette);
  separate(ctx, region);
}

let scratch: HTMLCanvasElement | undefined;

/** Draws one pixel for each cell, on a canvas that the next picture reuses. */
function pixels(grid: Grid, region: Region, { kind, hue, weight }: Look, palette: Palette): HTMLCanvasElement {
  const canvas = (scratch ??= document.createElement("canvas"));
  canvas.width = region.cols;
  canvas.height = region.rows;
  const ctx = canvas.getContext("2d")!;
  const image = ctx.createImageData(region.cols, region.rows);
  const words = new Uint32Array(image.data.buffer);
  const scale = grid.top > 0 ? 1 / grid.top : 0;
  for (let r = 0, i = 0; r < region.rows; r++) {
    const strength = scale * (weight?.(region.row + r) ?? 1);
    for (let c = 0; c < region.cols; c++, i++) {
      const value = grid.at(region.row + r, region.col + c);
      if (Number.isNaN(value)) continue;
      const v = value * strength;
      words[i] = packed(kind === "signed" ? palette.signed(v, hue) : palette.sequential(v, hue));
    }
  }
  ctx.putImageData(image, 0, 0);
  return canvas;
}

/** A diagonal through every negative cell, the other one through every closed cell: signs and masks without colour. */
function strikeThrough(ctx: CanvasRenderingContext2D, grid: Grid, region: Region, look: Look, palette: Palette): void {
  const [w, h] = [ctx.canvas.width / region.cols, ctx.canvas.height / region.rows];
  const [negative, closed] = [new Path2D(), new Path2D()];
  for (let r = 0; r < region.rows; r++) {
    for (let c = 0; c < region.cols; c++) {
      const [x, y] = [c * w, r * h];
      const value = grid.at(region.row + r, region.col + c);
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

function separate(ctx: CanvasRenderingContext2D, region: Region): void {
  const { width, height } = ctx.canvas;
  const [w, h] = [width / region.cols, height / region.rows];
  if (Math.min(w, h) < apart) return;
  const gap = Math.max(1, Math.round(Math.min(w, h) * 0.06));
  for (let c = 1; c <= region.cols; c++) ctx.clearRect(Math.round(c * w) - gap, 0, gap, height);
  for (let r = 1; r <= region.rows; r++) ctx.clearRect(0, Math.round(r * h) - gap, width, gap);
}
