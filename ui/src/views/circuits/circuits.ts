/** The graph of a circuit: where its parts stand, and what is left of it above a threshold. */

import type { Edge, ModelConfig, StackName } from "../../core/protocol";

export type Kind = "embed" | "head" | "ffn" | "feature" | "answer";

/** A part, as the graph draws it: what reads and what writes are one. */
export interface Part {
  key: string;
  kind: Kind;
  stack: StackName;
  layer: number;
  part: "attn" | "cross";
  /** Of a feature its number; -1 for all others and for the error. */
  head: number;
  /** What of the part reads, of a reader: q, k or v. Of a feature the address of its set. */
  side: string;
}

const FEATURE = /^(encoder|decoder)\.blocks\.(\d+)(\..+)(?:\[f=(\d+)\]|\.(?:others|error))$/;
const PLACE = /^(encoder|decoder)\.(?:embed\.(tokens|positions)|blocks\.(\d+)\.(attn|cross|ffn)\.(\w+)(?:\[h=(\d+)\])?)$/;

/** The part at an address of a writer or reader; of a key that several heads share, the first of them. */
export function partOf(at: string, config: ModelConfig): Part {
  const last: StackName = config.decoder ? "decoder" : "encoder";
  const split = FEATURE.exec(at);
  if (split) {
    const [, stack, layer, set, n] = split;
    return { key: at, kind: "feature", stack: stack as StackName, layer: Number(layer), part: "attn", head: Number(n ?? -1), side: `${stack}.blocks.${layer}${set}` };
  }
  const found = PLACE.exec(at);
  if (!found) return { key: "answer", kind: "answer", stack: last, layer: Infinity, part: "attn", head: 0, side: "" };
  const stack = found[1] as StackName, layer = Number(found[3] ?? -1), side = found[5] ?? "";
  const plain = { stack, layer, part: "attn" as const, head: 0, side: "" };
  if (found[2]) return { ...plain, key: at, kind: "embed", head: found[2] === "tokens" ? 0 : 1 };
  if (found[4] === "ffn") return { ...plain, key: `${stack}.${layer}.ffn`, kind: "ffn" };
  const part = found[4] === "cross" ? "cross" : "attn";
  const head = Number(found[6] ?? 0) * (side === "k" || side === "v" ? group(config, stack) : 1);
  return { key: `${stack}.${layer}.${part}.${head}`, kind: "head", stack, layer, part, head, side };
}

/** Heads that share a key and a value. */
function group(config: ModelConfig, stack: StackName): number {
  const of = config[stack];
  return of ? of.n_heads / (of.n_kv_heads ?? of.n_heads) : 1;
}

/** The writers whose parts make something of what a reader reads. */
export function fedBy(at: string, config: ModelConfig): string[] {
  const { kind, stack, layer, part, head, side } = partOf(at, config);
  if (kind === "feature") return [at];
  if (kind === "ffn") return [`${stack}.blocks.${layer}.ffn.out`];
  if (kind !== "head") return [];
  const n = side === "q" ? 1 : group(config, stack), place = `${stack}.blocks.${layer}.${part}`;
  return [...Array.from({ length: n }, (_, i) => `${place}.heads[h=${head + i}]`), `${place}.out`];
}

/** What feeds a writer: itself, or of a feature of what an attention writes that attention. */
function source(writer: string): string {
  return writer.replace(/((attn|cross)\.out)\..+/, "$1");
}

/** The edges on a path, all of them in the list, from an embedding to the answer: the others change nothing. */
export function onAPath(edges: readonly Edge[], config: ModelConfig): Edge[] {
  let left = [...edges];
  for (;;) {
    const writers = new Set(left.map((edge) => source(edge.writer)));
    const fed = new Set(left.flatMap((edge) => fedBy(edge.reader, config)));
    const kept = left.filter(({ writer, reader }) => {
      const feeds = fedBy(reader, config);
      return (feeds.length === 0 || feeds.some((one) => writers.has(one))) && (writer.includes(".embed.") || fed.has(source(writer)));
    });
    if (kept.length === left.length) return kept;
    left = kept;
  }
}

/** The edge into the answer that does most for it, the one into its writer, and so on back to an embedding; in the order of the text. None works against the answer if there is such a way. */
export function road(edges: readonly Edge[], config: ModelConfig): Edge[] {
  const good = onAPath(edges.filter(({ score }) => score > 0), config), found: Edge[] = [];
  if (good[0]) edges = good;
  for (let key = "answer"; ;) {
    const next = edges.filter(({ reader }) => partOf(reader, config).key === key).reduce<Edge | null>((one, other) => (one && one.score >= other.score ? one : other), null);
    if (!next || found.includes(next)) return found;
    found.unshift(next);
    key = partOf(next.writer, config).key;
  }
}

export interface Spot { part: Part; x: number; y: number; score: number }

/** Room around the parts: beside them for what goes in and the answer, above and below for their names. */
export const ROOM = { left: 116, right: 104, top: 52, foot: 20 };
/** Rows that many heads leave free in their middle, so that none of their names lies on a feed-forward. */
const free = (heads: number): number => (heads > 8 ? 1.6 : 0);
export interface Size { width: number; pitch: number }

const crossesOf = (config: ModelConfig, stack: StackName): 2 | 3 => (stack === "decoder" && config.encoder ? 3 : 2);
/** The columns of a stack: what goes in, then two for each block and one more where it reads across. */
const columnsOf = (config: ModelConfig, stack: StackName): number => 1 + (config[stack]?.n_layers ?? 0) * crossesOf(config, stack);

/** Where a stack stands: its first column, and what is above and as high as its heads. The decoder comes after the encoder and lower. */
export function bandOf(config: ModelConfig, stack: StackName, { pitch }: Size): { first: number; top: number; high: number } {
  const after = stack === "decoder" && config.encoder, n = config[stack]?.n_heads ?? 1, high = (n + free(n)) * pitch;
  return { first: after ? columnsOf(config, "encoder") : 0, top: ROOM.top + (after ? Math.min(config.encoder!.n_heads, 4) * pitch / 2 : 0), high };
}

/** The middle of a column; the last of all is the answer's. */
export function columnAt(column: number, config: ModelConfig, { width }: Size): number {
  const all = 1 + (config.encoder ? columnsOf(config, "encoder") : 0) + (config.decoder ? columnsOf(config, "decoder") : 0);
  return ROOM.left + (Math.min(column, all - 1) * (width - ROOM.left - ROOM.right)) / (all - 1);
}

/** Where each part stands, those that write before those that only read: the text at the left, the answer at the right, heads below each other. */
export function layout(nodes: ReadonlyMap<string, number>, config: ModelConfig, size: Size): Map<string, Spot> {
  const spots = new Map<string, Spot>(), sets = new Map<string, string[]>();
  for (const at of nodes.keys()) {
    const { kind, side } = partOf(at, config);
    if (kind === "feature") sets.set(side, [...(sets.get(side) ?? []), at]);
  }
  const put = (part: Part, score: number): void => {
    const { first, top, high } = bandOf(config, part.stack, size), [column, share] = placed(part, config, sets.get(part.side));
    if (!spots.has(part.key)) spots.set(part.key, { part, score, x: columnAt(first + column, config, size), y: top + high * share });
  };
  for (const [at, score] of nodes) put(partOf(at, config), score);
  put(partOf("head", config), 0);
  return spots;
}

/** The column of features in their block: between those of its parts, or that of the FFN. */
function columnOf(site: string, crosses: number): number {
  return site === "resid_pre" ? -0.5 : /attn$/.test(site) ? 0.5 : /cross$/.test(site) ? 1.5 : site === "resid_post" ? crosses - 0.5 : crosses - 1;
}

/** The column of a part in its stack and the share of the height. */
export function placed({ key, kind, stack, layer, part, head, side }: Part, config: ModelConfig, set: string[] = []): [column: number, share: number] {
  if (kind === "answer") return [Infinity, 0.5];
  if (kind === "embed") return [0, head ? 0.7 : 0.4];
  const crosses = crossesOf(config, stack), first = 1 + layer * crosses;
  if (kind === "feature") return [first + columnOf(side.split(".")[3]!, crosses), (set.indexOf(key) + 0.5) / set.length];
  if (kind === "ffn") return [first + crosses - 1, 0.5];
  const n = config[stack]?.n_heads ?? 1;
  return [first + (part === "cross" ? 1 : 0), (head + 0.5 + (2 * head < n ? 0 : free(n))) / (n + free(n))];
}
