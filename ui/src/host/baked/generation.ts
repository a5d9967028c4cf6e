/** What the model writes, as the tree that clearhead/explorer/answering/search_tree.py makes of it. */

import type { GenerateReply, GenerateSettings } from "../../core/protocol";
import { logSumExp, topIndices } from "../../core/top";
import { NOTHING, type Past, type Reader } from "../../engine/decoding";
import { Search, type Found } from "../../engine/writing/search";
import type { Settings } from "../../engine/writing/sampling";

const MOST_NODES = 4096, LIKELIEST = 10, ALTERNATIVES = 3;

type Node = GenerateReply["nodes"][number];
type Top = [id: number, share: number][];

export interface Written { nodes: Node[]; best: number[]; tops: Top[]; found: Found | null }

/** Only the model's special tokens and its rules of repetition are its own. */
export function settingsOf(own: Settings, asked: GenerateSettings): Settings {
  if (asked.temperature > 0 && asked.beams > 1) {
    throw new Error(`beams=${asked.beams} and temperature=${asked.temperature}: set beams=1 or temperature=0`);
  }
  const narrow = asked.temperature > 0 ? { top_k: asked.top_k, top_p: asked.top_p } : { top_k: null, top_p: null };
  return {
    ...own, ...asked, ...narrow, length_penalty: asked.length_penalty ?? own.length_penalty,
    min_new_tokens: Math.min(own.min_new_tokens, asked.max_new_tokens),
  };
}

/** Continues a prompt. `pause` is awaited after every step. */
export async function write(reader: Reader, prompt: number[], settings: Settings, limit: number, pause: () => Promise<void>): Promise<Written> {
  const search = new Search(prompt, settings, limit), tree = new Tree(settings.length_penalty);
  const first = await reader.read(NOTHING, prompt);
  let slots: { node: number; past: Past; logits: Float32Array }[] = [{ node: 0, ...first }];
  while (!search.done) {
    const before = slots, step = search.advance(before.map((slot) => slot.logits));
    for (const { node, logits } of before) tree.read(node, logits);
    const nodes = step.tokens.map((token, i) => tree.grow(before[step.parents[i]!]!.node, token, step.logProbs[i]!));
    await pause();
    if (search.done) break;
    slots = [];
    for (const [i, token] of step.tokens.entries()) slots.push({ node: nodes[i]!, ...(await reader.read(before[step.parents[i]!]!.past, [token])) });
  }
  const paths = search.best().map((found) => tree.path(found)), best = paths[0] ?? [];
  const tops = best.map((node) => tree.tops.get(tree.nodes[node]!.parent) ?? []);
  if (settings.beams === 1) tree.branch(best, tops);
  return { nodes: tree.nodes, best, tops, found: search.best()[0] ?? null };
}

class Tree {
  readonly nodes: Node[] = [{ parent: -1, id: -1, text: "", log_prob: 0, score: 0, kept: true, final: false, step: -1 }];
  /** By node, the likeliest tokens after it, over the whole vocabulary. */
  readonly tops = new Map<number, Top>();
  #totals = [0];

  constructor(private readonly penalty: number) {}

  /** A new node below another, and its number. */
  add(parent: number, id: number, logProb: number): number {
    const total = this.#totals[parent]! + logProb, step = this.nodes[parent]!.step + 1;
    this.nodes.push({ parent, id, text: "", log_prob: logProb, score: total / (step + 1) ** this.penalty, kept: false, final: false, step });
    this.#totals.push(total);
    return this.nodes.length - 1;
  }

  grow(parent: number, id: number, logProb: number): number {
    this.nodes[parent]!.kept = true;
    return this.add(parent, id, logProb);
  }

  read(node: number, logits: Float32Array): void {
    if (this.tops.has(node)) return;
    const log = logSumExp(logits);
    this.tops.set(node, topIndices(logits, LIKELIEST).map((id) => [id, Math.exp(logits[id]! - log)]));
  }

  /** The nodes of a finished text; its last one is added if no step did. */
  path({ written, total, ended }: Found): number[] {
    const path = [0];
    for (const id of written) {
      const above = path.at(-1)!, at = this.nodes.findIndex((node) => node.parent === above && node.id === id);
      path.push(at >= 0 ? at : this.add(above, id, total - this.#totals[above]!));
    }
    for (const i of path) this.nodes[i]!.kept = true;
    this.nodes[path.at(-1)!]!.final = ended;
    return path.slice(1);
  }

  /** Adds the likeliest tokens that were not taken, as nodes without children. */
  branch(best: readonly number[], tops: readonly Top[]): void {
    best.forEach((node, i) => {
      const others = tops[i]!.filter(([id, share]) => id !== this.nodes[node]!.id && share > 0);
      for (const [id, share] of others.slice(0, ALTERNATIVES)) {
        if (this.nodes.length < MOST_NODES) this.add(this.nodes[node]!.parent, id, Math.log(share));
      }
    });
  }
}
