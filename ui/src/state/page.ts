/** What the reader has chosen. The permalink holds all of it, and undo steps back through it. */

import type { About, Change, Edit, Plan, RunRequest, StackName } from "../core/protocol";
import type { PlaceName, Step } from "./places";
import type { Run } from "./run";

export type Part = (typeof PARTS)[number];
/** What mixes the tokens in a block: attention, or a state. */
export const PARTS = ["attn", "cross", "mix"] as const;
export type Side = "a" | "b" | "diff";
/** How an attention is drawn: its matrices, one step after the other, or lines over the sentence. */
export type Form = (typeof FORMS)[number];
export const FORMS = ["map", "steps", "lines"] as const;

export const ZOOMS = ["", "word", "block", "head"] as const;

export type Reads = Pick<RunRequest, "text" | "target" | "image" | "step">;

/** For what does not depend on the text. */
export const NOTHING: Reads = { text: "", target: null };

export interface Page {
  view: PlaceName;
  /** In the overview: what is looked at more closely, the chosen word, block or head. */
  zoom: (typeof ZOOMS)[number];
  step: Step;
  stack: StackName;
  layer: number;
  part: Part;
  head: number;
  /** Positions of the selected query and key, and a component of their vectors. */
  query: number;
  key: number;
  dim: number | null;
  /** Which position's answer is shown; null: the last one of a decoder, or the first masked one of an encoder. */
  position: number | null;
  side: Side;
  /** What A reads. B reads `other` if it is set, else the same. */
  reads: Reads;
  other: Reads | null;
  /** Of B. */
  edits: Edit[];
  change: Change;
  temperature: number;
  mode: "learn" | "explore" | "research";
  /** In Learn: the walk, by its name, and the stop, by its name or its number. "": the page's first walk. */
  walk: string;
  stop: number | string;
  form: Form;
  /** Which moment of a token's way through a place is on the stage. */
  moment: number;
  /** Heads whose lines are drawn; null: the head of the place alone. */
  heads: number[] | null;
  /** Which set of features is shown, and which feature of it; -1: the strongest. */
  set: number;
  feature: number;
  /** For a projector: without the panels, in larger type. */
  present: boolean;
}

export function plainPage(reads: Reads): Page {
  return {
    view: "attention", zoom: "", step: "softmax", stack: "encoder", layer: 0, part: "attn", head: 0, query: 0, key: 0, dim: null,
    position: null, side: "a", reads, other: null, edits: [], change: {}, temperature: 1, mode: "explore",
    walk: "", stop: 0, form: "map", moment: 0, heads: null, set: 0, feature: -1, present: false,
  };
}

/** The address of what an attention place is about, without the last name: `encoder.blocks.1.attn`. */
export function attentionAt(page: Page): string {
  return `${page.stack}.blocks.${page.layer}.${page.part}`;
}

export function requestA(page: Page): RunRequest {
  return { ...page.reads, edits: [] };
}

/** B's forward pass; null where it would be A's. */
export function requestB(page: Page): RunRequest | null {
  const changed = page.change.scale === false || page.change.positions !== undefined;
  if (!page.other && page.edits.length === 0 && !changed) return null;
  const request: RunRequest = { ...(page.other ?? page.reads), edits: page.edits };
  return changed ? { ...request, change: page.change } : request;
}

/** Limits a page to a head that the model has, to the tokens of the run, and to the `n` tokens that are shown. */
export function limit(page: Page, { plan }: About, run: Run | null, n = 0): void {
  const { config } = plan;
  if (!config[page.stack]) page.stack = config.encoder ? "encoder" : "decoder";
  const stack = config[page.stack];
  if (!stack) return;
  page.layer = clamp(page.layer, stack.n_layers);
  const parts = partsOf(plan, page);
  if (!parts.includes(page.part)) page.part = parts[0] ?? "attn";
  const shape = run?.reply.facts[`${attentionAt(page)}.weights`]?.shape, heads = shape?.[0] ?? stack.n_heads;
  page.head = clamp(page.head, heads);
  page.heads = page.heads?.filter((head) => head < heads) ?? null;
  if (shape) [page.query, page.key] = [clamp(page.query, shape[1] ?? 1), clamp(page.key, shape[2] ?? 1)];
  if (page.position !== null && n) page.position = clamp(page.position, n);
}

/** Which parts of a block mix its tokens. */
export function partsOf({ ops }: Plan, { stack, layer }: Pick<Page, "stack" | "layer">): Part[] {
  return PARTS.filter((part) => ops.some(({ out }) => out === `${stack}.blocks.${layer}.${part}.out`));
}

function clamp(value: number, count: number): number {
  return Math.max(0, Math.min(value, count - 1));
}
