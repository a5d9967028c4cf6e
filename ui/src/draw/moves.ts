/** Where a key leads among rows and columns. */

const MOVES: Readonly<Record<string, readonly [row: number, col: number]>> = {
  ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
  PageUp: [-10, 0], PageDown: [10, 0], Home: [0, -Infinity], End: [0, Infinity],
};

/** By how many rows and columns; null for another key. The page, whose own arrows move the selection, does not get it. */
export function moveOf(event: KeyboardEvent): readonly [row: number, col: number] | null {
  const move = MOVES[event.key];
  if (!move) return null;
  event.preventDefault();
  event.stopPropagation();
  return move;
}
