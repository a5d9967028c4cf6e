/** What a patching sweep asks for, the rows as matrices, and a cell as an edit. */

import type { Edit, ModelConfig, RunRequest, StackName } from "../../core/protocol";
import { num, percent, placeName, t, type Run } from "../../parts/kit";

export const PARTS = ["resid", "attn", "ffn", "heads"] as const;
export type SweptPart = (typeof PARTS)[number];

/** The states of one kind of one stack: a row for each block, the last one first. */
export interface Swept {
  stack: StackName;
  /** The last part of the addresses, such as `resid_pre`. */
  value: string;
  blocks: number[];
  cols: number;
  values: Float32Array;
}

/** A cell that a reader chose. */
export interface Cell { at: string; axis: "t" | "h"; index: number }

/** A site in words, such as "Encoder, block 0, head 3" or in a model of one stack "Block 0, head 3", or with what `tokens` calls its position. */
export function named(site: string, config: ModelConfig, tokens: readonly string[] = []): string {
  const [, stack, n = "", value = "", axis, index = ""] = /^(\w+)\.blocks\.(\d+)\.(\w+)[\w.]*(?:\[(\w)=(?:\d+ )?(.*)\])?$/.exec(site) ?? [];
  if (!stack) return site;
  const what = axis === "h" ? t(value === "cross" ? "patching.cross" : "patching.head", { h: index }) : t(`patching.at.${value}`) + (axis ? ` ${tokens[Number(index)] ?? index}` : "");
  return t("crumb.part", { block: placeName({ config }, { stack: stack as StackName, layer: Number(n) }), part: what });
}

/** Rows by address as one matrix for each kind; rows that are still to come are NaN. */
export function matricesOf(sites: readonly string[], rows: ReadonlyMap<string, Float32Array>): Swept[] {
  const found = new Map<string, Swept>();
  for (const site of sites) {
    const [, stack = "", block = "", value = ""] = /^(\w+)\.blocks\.(\d+)\.(.+)$/.exec(site) ?? [], name = `${stack} ${value}`;
    const one = found.get(name) ?? { stack: stack as StackName, value, blocks: [], cols: 0, values: new Float32Array() };
    found.set(name, { ...one, blocks: [...one.blocks, Number(block)], cols: Math.max(one.cols, rows.get(site)?.length ?? 0) });
  }
  const order = (one: Swept): number => Number(one.stack === "decoder");
  return [...found.values()].sort((one, other) => order(one) - order(other)).filter(({ cols }) => cols > 0).map((one) => {
    const values = new Float32Array(one.blocks.length * one.cols).fill(NaN);
    one.blocks.forEach((block, i) => values.set(rows.get(`${one.stack}.blocks.${block}.${one.value}`) ?? [], i * one.cols));
    return { ...one, values };
  });
}

/** A share that may be negative or more than all; a little more is all. */
export const portion = (x: number): string => (x > 0 && x < 1.05 ? percent(Math.min(1, x)) : `${num(100 * x, 0)}\u00a0%`);

/** What a matrix of states is, such as "Encoder, self-attention". */
export const titleOf = ({ stack, value }: Swept): string =>
  `${t(`stack.${stack}`)} · ${/^(attn|cross)/.test(value) ? t(`norm.part.${value.startsWith("attn") ? "attn" : "cross"}`) : t(`patching.at.${value.split(".")[0]!}`)}`;

/** The edits that put a cell's clean state into the corrupt run. Positions that moved are written as numbers. */
export async function editsOf({ at, axis, index }: Cell, pairs: readonly [number, number][], clean: Run, from: RunRequest): Promise<Edit[]> {
  if (pairs.every(([ours, theirs]) => ours === theirs)) return [{ at: `${at}[${axis}=${index}]`, do: "patch", from }];
  const wanted = axis === "h" ? pairs : pairs.filter(([, theirs]) => theirs === index), head = axis === "h" ? `h=${index},` : "";
  return Promise.all(wanted.map(async ([ours, theirs]) => {
    const { data } = await clean.value(`${at}[${head}t=${ours}]`);
    return { at: `${at}[${head}t=${theirs}]`, do: "set" as const, value: Array.from(data) };
  }));
}
