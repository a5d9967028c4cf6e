/** A matrix to be drawn, wherever its numbers are stored. */

export interface Grid {
  rows: number;
  cols: number;
  /** The largest |value| of an open cell: what the strongest colour means. */
  top: number;
  /** NaN where closed. */
  at(row: number, col: number): number;
}

export interface GridSource {
  values: Float32Array;
  rows: number;
  cols: number;
  closed?: ((row: number, col: number) => boolean) | undefined;
  top?: number | undefined;
}

export function gridOf({ values, rows, cols, closed, top }: GridSource): Grid {
  const at = (row: number, col: number): number => (closed?.(row, col) ? NaN : (values[row * cols + col] ?? NaN));
  return { rows, cols, at, top: top ?? largest({ rows, cols, at }) };
}

function largest({ rows, cols, at }: Omit<Grid, "top">): number {
  let top = 0;
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < cols; c++) {
      const size = Math.abs(at(r, c));
      if (size > top && size < Infinity) top = size;
    }
  }
  return top;
}

/** The weights of a head, as shares of 255 or of `max` of their row. */
export interface Head { pixels: Uint8Array; max?: Float32Array; rows: number; cols: number }

/** A head in at most `most` rows and columns: each cell is the largest that it stands for.
 *  The strongest colour means the largest of the rows that have a choice: a row with one open key gives it all. */
export function headOf({ pixels, max, rows, cols }: Head, most = 32): Grid {
  const height = Math.min(rows, most), width = Math.min(cols, most), values = new Float32Array(height * width);
  const columns = Uint16Array.from({ length: cols }, (_, c) => Math.floor((c * width) / cols));
  let top = 0;
  for (let r = 0, i = 0; r < rows; r++) {
    const line = Math.floor((r * height) / rows) * width, scale = (max?.[r] ?? 1) / 255;
    let open = 0, largest = 0;
    for (let c = 0; c < cols; c++, i++) {
      const at = line + columns[c]!, value = pixels[i]! * scale;
      if (value > 0) open++;
      if (value > largest) largest = value;
      if (value > values[at]!) values[at] = value;
    }
    if (open > 1 && largest > top) top = largest;
  }
  return gridOf({ values, rows: height, cols: width, top: top || undefined });
}

/** The cell under the pointer, of an element that a grid fills. */
export function cellUnder(event: MouseEvent, { row = 0, col = 0, rows, cols }: { row?: number; col?: number; rows: number; cols: number }): { row: number; col: number } {
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

/** `count` rows of a grid from `from` on in at most rows x cols cells. Each is its value of the largest size, with its sign: a single bright cell
 *  survives, as it would not in a mean. Closed only where all of it is. */
export function pooled(grid: Grid, rows: number, cols: number, from = 0, count = grid.rows): Grid {
  const height = Math.min(rows, count), width = Math.min(cols, grid.cols);
  const values = new Float32Array(height * width).fill(NaN);
  for (let r = 0; r < count; r++) {
    const line = Math.floor((r * height) / count) * width;
    for (let c = 0; c < grid.cols; c++) {
      const cell = line + Math.floor((c * width) / grid.cols), value = grid.at(from + r, c), kept = values[cell]!;
      if (Number.isNaN(kept) || Math.abs(value) > Math.abs(kept)) values[cell] = value;
    }
  }
  return gridOf({ values, rows: height, cols: width, top: grid.top });
}
