/** Activation patching by forward passes of the page's engine, as clearhead/analysis/sweep.py does it. */

import { common } from "../../core/align";
import { LEAST, type Answered, type Asked } from "../../core/host";
import { type Edit, type StackName } from "../../core/protocol";
import { floats, row, type Floats } from "../../core/tensor";
import { num } from "../../draw/format";
import { rerun, type Options, type Pass } from "../../engine/forward";
import { t } from "../../i18n/index.svelte";

type Pairs = [clean: number, corrupt: number][];

const VALUES = { resid: ["resid_pre"], attn: ["attn.out", "cross.out"], ffn: ["ffn.out"], heads: ["attn.z", "cross.z"] } as const;

/** How much of the clean run's answer each of its states restores in the corrupt run; `pause` lets the page draw. */
export async function patching(clean: Pass, corrupt: Pass, asked: Asked<"patching">, options: Options, pause: () => Promise<void>): Promise<Answered<"patching">> {
  const { answer, minus } = asked, { config } = clean.plan;
  const stacks = (["encoder", "decoder"] as const).filter((name) => config[name]), last = stacks.at(-1)!;
  const ids = (pass: Pass, stack: StackName): number[] => Array.from(pass.numbers.get(`${stack}.ids`)!.data);
  const alignment: Partial<Record<StackName, Pairs>> = {};
  for (const stack of stacks) alignment[stack] = partners(ids(clean, stack), ids(corrupt, stack));
  const position = placeOf(asked.position, alignment[last]!, ids(clean, last).length, ids(corrupt, last).length);
  const difference = (pass: Pass, at: number): number => {
    const logits = pass.values.get("head.logits")!, { data } = logits.shape.length === 1 ? logits : { data: row(logits, at) };
    return data[answer]! - (minus === undefined ? 0 : data[minus]!);
  };
  const ours = difference(clean, position[0]), theirs = difference(corrupt, position[1]);
  if (Math.abs(ours - theirs) <= LEAST) throw new Error(t("patching.equal", { clean: num(ours, 3), corrupt: num(theirs, 3), least: LEAST }));
  const sitesOf = (values: readonly string[]): string[] => [...stacks].reverse().flatMap((stack) =>
    Array.from({ length: config[stack]!.n_layers }, (_, i) => i).reverse().flatMap((i) => values.map((value) => `${stack}.blocks.${i}.${value}`))).filter((at) => clean.values.has(at));
  const sites = Object.fromEntries(Object.entries(VALUES).map(([part, values]) => [part, sitesOf(values)])) as Answered<"patching">["json"]["sites"];

  const restored = async (at: string): Promise<Floats> => {
    const stack = at.split(".")[0] as StackName, given = clean.values.get(at)!, own = corrupt.values.get(at)!;
    const cells = cellsOf(alignment[stack]!, at, given, own), found = floats([cells.length]);
    for (const [i, edits] of cells.entries()) {
      found.data[i] = edits === null ? NaN : edits.length ? (difference(rerun(corrupt, edits, options), position[1]) - theirs) / (ours - theirs) : 0;
      await pause();
    }
    return found;
  };
  const tensors = new Map<string, Floats>();
  for (const at of asked.at) tensors.set(at, await restored(at));
  return { json: { alignment, position, clean: ours, corrupt: theirs, sites }, tensors };
}

/** For each cell, a head or a position, what puts the clean states there: no edits where they are equal, null where none is aligned. */
function cellsOf(pairs: Pairs, at: string, given: Floats, own: Floats): (Edit[] | null)[] {
  const byHead = own.shape.length === 3, width = own.shape.at(-1)!;
  const set = (i: number, n: number, m: number): Edit[] => {
    const one = (of: Floats, t: number): number[] => Array.from(of.data.subarray((i * of.shape.at(-2)! + t) * width, (i * of.shape.at(-2)! + t + 1) * width));
    const value = one(given, n);
    if (String(value) === String(one(own, m))) return [];
    return [{ at: `${at}[${byHead ? `h=${i},` : ""}t=${m}]`, do: "set", value }];
  };
  if (byHead) return Array.from({ length: own.shape[0]! }, (_, i) => pairs.flatMap(([n, m]) => set(i, n, m)));
  const partner = new Map(pairs.map(([n, m]) => [m, n]));
  return Array.from({ length: own.shape[0]! }, (_, m) => (partner.has(m) ? set(0, partner.get(m)!, m) : null));
}

/** Texts of one length are aligned position by position; others by what they share, and by the ends of what they do not. */
export function partners(clean: readonly number[], corrupt: readonly number[]): Pairs {
  if (clean.length === corrupt.length) return clean.map((_, i) => [i, i]);
  const shorter = Math.min(clean.length, corrupt.length);
  let start = 0, end = 0;
  while (start < shorter && clean[start] === corrupt[start]) start++;
  while (end < shorter - start && clean.at(-1 - end) === corrupt.at(-1 - end)) end++;
  const m = clean.length - end, n = corrupt.length - end;
  const middle = common(clean.slice(start, m), corrupt.slice(start, n)).map(([i, j]): [number, number] => [start + i, start + j]);
  const found: Pairs = Array.from({ length: start }, (_, i) => [i, i]);
  let [a, b] = [start - 1, start - 1];
  for (const [c, d] of [...middle, [m, n] as [number, number]]) {
    for (let i = Math.min(c - a, d - b) - 1; i > 0; i--) found.push([c - i, d - i]);
    if (c < m) found.push([c, d]);
    [a, b] = [c, d];
  }
  return [...found, ...Array.from({ length: end }, (_, i): [number, number] => [m + i, n + i])];
}

/** The positions of the answer. The last one of a text goes with the last of the other. */
function placeOf(position: number, pairs: Pairs, length: number, other: number): [number, number] {
  const at = position < 0 ? position + length : position;
  const partner = at === length - 1 ? other - 1 : pairs.find(([clean]) => clean === at)?.[1];
  if (partner === undefined) throw new Error(`position ${position}: expected one that is aligned with the corrupt text; try another`);
  return [at, partner];
}
