/** A matrix to be drawn, wherever its numbers are stored. */

export interface Grid {
  rows: number;
  cols: number;
  /** The largest |value| of an open cell: what the strongest colour means. */
  top: number;
  /** NaN where closed. */
  at(row: number, col: number): number;
  closed(row: number, col: number): boolean;
}

export interface Region { row: number; col: number; rows: number; cols: number }

export interface GridSource {
  values: Float32Array | Uint8Array;
  rows: number;
  cols: number;
  /** For 8-bit values, by row: what 255 stands for. */
  max?: Float32Array | undefined;
  closed?: ((row: number, col: number) => boolean) | undefined;
  top?: number | undefined;
}

export function gridOf({ values, rows, cols, max, closed, top }: GridSource): Grid {
  const raw = (row: number, col: number): number => {
    const value = values[row * cols + col] ?? NaN;
    return values instanceof Float32Array ? value : (value / 255) * (max?.[row] ?? 1);
  };
  const isClosed = (row: number, col: number): boolean => Number.isNaN(raw(row, col)) || (closed?.(row, col) ?? false);
  const at = (row: number, col: number): number => (closed?.(row, col) ? NaN : raw(row, col));
  const grid = { rows, cols, top: top ?? 0, at, closed: isClosed };
  if (top === undefined) grid.top = largest(grid, whole(grid));
  return grid;
}

export const whole = (grid: Grid): Region => ({ row: 0, col: 0, rows: grid.rows, cols: grid.cols });

function largest(grid: Grid, region: Region): number {
  let top = 0;
  for (let r = region.row; r < region.row + region.rows; r++) {
    for (let c = region.col; c < region.col + region.cols; c++) {
      const size = Math.abs(grid.at(r, c));
      if (size > top && size < Infinity) top = size;
    }
  }
  return top;
}

/** The largest weight of the rows that have a choice: a row with one open key gives it all. Undefined if none has. */
export function topOfChoices(pixels: Uint8Array, max: Float32Array | undefined, rows: number, cols: number): number | undefined {
  let top = 0;
  for (let r = 0; r < rows; r++) {
    let open = 0, most = 0;
    for (let c = r * cols; c < (r + 1) * cols; c++) {
      if (pixels[c]! > 0) open++;
      if (pixels[c]! > most) most = pixels[c]!;
    }
    if (open > 1) top = Math.max(top, (most / 255) * (max?.[r] ?? 1));
  }
  return top || undefined;
}

/** The cell under the pointer, of an element that a grid fills. */
export function cellUnder(event: MouseEvent, { row = 0, col = 0, rows, cols }: Partial<Region> & { rows: number; cols: number }): { row: number; col: number } {
  const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
  const part = (share: number, count: number): number => Math.max(0, Math.min(count - 1, Math.floor(share * count)));
  return { row: row + part((event.clientY - box.top) / box.height, rows), col: col + part((event.clientX - box.left) / box.width, cols) };
}

/** Where a window of `size` begins so that `at` is in its middle, as far as the ends allow. */
export function around(at: number, size: number, total: number): number {
  return Math.max(0, Math.min(total - size, Math.round(at - size / 2)));
}

/** Where a window that begins at `start` must begin to hold `at`: it moves only when it must. */
export function follow(start: number, at: number, size: number, total: number): number {
  return at >= start && at < start + size ? start : around(at, size, total);
}

/** `region` in at most rows x cols cells. Each is its value of the largest size, with its sign: a single bright cell
 *  survives, as it would not in a mean. Closed only where all of it is. */
export function pooled(grid: Grid, region: Region, rows: number, cols: number): Grid {
  const [height, width] = [Math.min(rows, region.rows), Math.min(cols, region.cols)];
  const values = new Float32Array(height * width).fill(NaN);
  for (let r = 0; r < region.rows; r++) {
    const line = Math.floor((r * height) / region.rows) * width;
    for (let c = 0; c < region.cols; c++) {
      const cell = line + Math.floor((c * width) / region.cols);
      const value = grid.at(region.row + r, region.col + c);
      const kept = values[cell]!;
      if (Number.isNaN(kept) || Math.abs(value) > Math.abs(kept)) values[cell] = value;
    }
  }
  return gridOf({ values, rows: height, cols: width, top: grid.top });
}
