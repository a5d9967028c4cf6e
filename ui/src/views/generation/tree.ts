/** The tree of a generation: the layout of its nodes, how keys move between them, and the same as nested lists. */

import type { GenerateReply } from "../../core/protocol";

export type Node = GenerateReply["nodes"][number];

/** The most nodes that are drawn; dropped nodes are left out first. */
export const MOST = 1000;

export interface Placed { i: number; node: Node; column: number; row: number; best: boolean }

export interface Layout {
  placed: Placed[];
  columns: number;
  rows: number;
  /** Dropped nodes that are not drawn. */
  left: number;
}

/** A column for each token, in it the nodes in the order of their parents, the answer's first: no line crosses another. */
export function layout(nodes: readonly Node[], best: readonly number[]): Layout {
  const onBest = new Set([0, ...best]);
  const drawn = (i: number): boolean => nodes.length <= MOST || nodes[i]!.kept;
  const children = childrenOf(nodes, onBest, drawn);
  const placed: Placed[] = [];
  let column = [0],
    rows = 1,
    columns = 0;
  while (column.length > 0) {
    column.forEach((i, row) => placed.push({ i, node: nodes[i]!, column: columns, row, best: onBest.has(i) }));
    rows = Math.max(rows, column.length);
    columns += 1;
    column = column.flatMap((i) => children[i] ?? []);
  }
  return { placed, columns, rows, left: nodes.length - placed.length };
}

/** The children of each node: the answer's first, then kept ones, then by score. */
function childrenOf(nodes: readonly Node[], onBest: ReadonlySet<number>, drawn: (i: number) => boolean): number[][] {
  const children: number[][] = nodes.map(() => []);
  nodes.forEach((node, i) => {
    if (node.parent >= 0 && drawn(i)) children[node.parent]?.push(i);
  });
  const weight = (i: number): number => (onBest.has(i) ? 2 : 0) + (nodes[i]!.kept ? 1 : 0);
  for (const list of children) list.sort((x, y) => weight(y) - weight(x) || nodes[y]!.score - nodes[x]!.score);
  return children;
}

/** The node that a key leads to; null if there is none. */
export function moved({ placed }: Layout, from: number, key: string): number | null {
  const here = placed.find((one) => one.i === from);
  if (!here) return null;
  const beside = (by: number): Placed | undefined =>
    placed.find((one) => one.column === here.column && one.row === here.row + by);
  const moves: Record<string, () => number | undefined> = {
    ArrowLeft: () => (here.node.parent >= 0 ? here.node.parent : undefined),
    ArrowRight: () => placed.find((one) => one.node.parent === from)?.i,
    ArrowUp: () => beside(-1)?.i,
    ArrowDown: () => beside(1)?.i,
    Home: () => 0,
    End: () => placed.filter((one) => one.best).at(-1)?.i,
  };
  return moves[key]?.() ?? null;
}

/** A path of the tree as a list; `branches` are other paths that leave it after this token. */
export interface Item {
  i: number;
  node: Node;
  branches: Item[][];
}

export function asLists({ placed }: Layout): Item[] {
  const children = new Map<number, Placed[]>();
  for (const one of placed) children.set(one.node.parent, [...(children.get(one.node.parent) ?? []), one]);
  const path = (start: Placed): Item[] => {
    const items: Item[] = [];
    for (let at: Placed | undefined = start; at;) {
      const [main, ...others]: Placed[] = children.get(at.i) ?? [];
      items.push({ i: at.i, node: at.node, branches: others.map(path) });
      at = main;
    }
    return items;
  };
  return placed[0] ? path(placed[0]) : [];
}

/** The part of a text that these tokens spell, from its beginning; marks that are not in the text spell nothing. */
export function prefixOf(text: string, tokens: readonly string[]): string {
  let end = 0;
  for (const token of tokens) {
    const piece = token.replaceAll("▁", " ").replaceAll("⏎", "\n").trim();
    const at = piece === "" ? -1 : text.indexOf(piece, end);
    if (at >= 0 && text.slice(end, at).trim() === "") end = at + piece.length;
  }
  return text.slice(0, end);
}
