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

/** The strongest edge into the answer, the strongest into its writer, and so on back to an embedding; in the order of the text. */
export function road(edges: readonly Edge[], config: ModelConfig): Edge[] {
  const found: Edge[] = [];
  for (let key = "answer"; ;) {
    const next = edges.filter(({ reader }) => partOf(reader, config).key === key).reduce<Edge | null>((one, other) => (one && Math.abs(one.score) >= Math.abs(other.score) ? one : other), null);
    if (!next || found.includes(next)) return found;
    found.unshift(next);
    key = partOf(next.writer, config).key;
  }
}

export interface Spot { part: Part; x: number; y: number; score: number }

/** How wide the names of rows stand beside a stack. */
export const namesOf = (each: number): number => (each < 300 ? each * 0.34 : Math.min(152, each / 2));

/** Where each part stands, those that write before those that only read: a stack beside the other, layers upward, heads,
 *  cross heads and the FFN from left to right. */
export function layout(nodes: ReadonlyMap<string, number>, config: ModelConfig, size: { width: number; row: number }): Map<string, Spot> {
  const stacks = (["encoder", "decoder"] as const).filter((name) => config[name]);
  const rows = Math.max(...stacks.map((name) => rowsOf(config, name)));
  const spots = new Map<string, Spot>(), each = size.width / stacks.length, names = namesOf(each);
  const sets = new Map<string, string[]>();
  for (const at of nodes.keys()) {
    const { kind, side } = partOf(at, config);
    if (kind === "feature") sets.set(side, [...(sets.get(side) ?? []), at]);
  }
  const put = (part: Part, score: number): void => {
    const left = stacks.indexOf(part.stack) * each, [row, share] = placed(part, config, sets.get(part.side));
    if (!spots.has(part.key)) spots.set(part.key, { part, score, x: left + (left ? 0 : names) + (each - names) * share, y: (rows - Math.min(row, rows - 1) - 0.5) * size.row });
  };
  for (const [at, score] of nodes) put(partOf(at, config), score);
  put(partOf("head", config), 0);
  return spots;
}

/** The number of rows of a stack: embeddings, two for each block and one more where it reads across, and the answer. */
export function rowsOf(config: ModelConfig, stack: StackName): number {
  const crosses = stack === "decoder" && config.encoder;
  return 2 + (config[stack]?.n_layers ?? 0) * (crosses ? 3 : 2);
}

/** The row of features in their block: between those of its parts, or that of the FFN. */
function rowOf(site: string, crosses: number): number {
  return site === "resid_pre" ? -0.5 : /attn$/.test(site) ? 0.5 : /cross$/.test(site) ? 1.5 : site === "resid_post" ? crosses - 0.5 : crosses - 1;
}

/** The row from below and the share of the width. */
function placed({ key, kind, stack, layer, part, head, side }: Part, config: ModelConfig, set: string[] = []): [row: number, share: number] {
  if (kind === "answer") return [Infinity, 0.5];
  if (kind === "embed") return [0, head ? 0.65 : 0.35];
  const crosses = stack === "decoder" && config.encoder ? 3 : 2, first = 1 + layer * crosses;
  if (kind === "feature") return [first + rowOf(side.split(".")[3]!, crosses), (set.indexOf(key) + 0.75) / (set.length + 0.5)];
  if (kind === "ffn") return [first + crosses - 1, 0.5];
  return [first + (part === "cross" ? 1 : 0), (head + 0.75) / ((config[stack]?.n_heads ?? 1) + 0.5)];
}
