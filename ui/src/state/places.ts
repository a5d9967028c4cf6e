/** The places of the page: the list at the left, links, crumbs, and the way from a number to its place follow from it.
 *
 * A new place is a row here, its component (see views/index.ts), and its name in the catalogues: `view.NAME`.
 */

import type { Ask } from "../core/host";
import type { About } from "../core/protocol";

/** What a reader changes of a head, a block, a row of weights, or the network; `number`: the number that is looked at. */
export type Control = "head" | "block" | "weight" | "scale" | "positions" | "number";

interface PlaceRow {
  name: string;
  /** Which list it is in: the steps from the input to the answer, or what shows all of the model at once. */
  list: "steps" | "whole";
  /** The steps that it has itself, each an entry of the list. */
  steps?: readonly string[];
  /** The chapter of the course that is about it (lab/clearhead_lab/course/pages), if there is one. */
  chapter?: string;
  /** What of the model it shows, if not all: that is named in the heading and chosen beside the figure. */
  of?: "block" | "part" | "head";
  /** The tokens that it shows, which the ribbon chooses: a query, a query and a key, or the position of the answer. */
  reads?: "query" | "pair" | "position";
  /** The controls that act on what is selected here. */
  acts?: readonly Control[];
  /** Whether it shows the answer itself; "one": of two runs not how it moved. */
  answers?: true | "one";
  /** Whether a token's way through it can be seen one moment after the other. */
  moments?: true;
  /** The addresses of the values that are seen here; the first row that fits is taken. */
  values?: RegExp;
  /** The question that a host must answer for it. */
  asks?: Ask;
  /** Which models have it, if not all. */
  when?: (about: About) => boolean;
}

/** Whether an op makes a value whose address fits. */
const makes = (at: RegExp) => ({ plan }: About): boolean => plan.ops.some(({ out }) => at.test(out));

/** Whether the head chooses among answers. */
const chooses = ({ plan }: About): boolean => /^(language|classification|tagging)$/.test(plan.config.head.kind);

const ROWS = [
  { name: "overview", list: "whole", asks: "overview" },
  { name: "image", list: "steps", of: "head", acts: ["number"], chapter: "images", when: ({ kind, plan }) => kind === "image" || !!plan.config.pictures },
  { name: "tokens", list: "steps", answers: true, chapter: "tokens", when: ({ kind }) => kind !== "image" },
  { name: "embedding", list: "steps", reads: "query", acts: ["number"], chapter: "embeddings", moments: true, values: /\.embed\.(?!positions$)/ },
  { name: "position", list: "steps", reads: "pair", acts: ["positions", "number"], chapter: "positions", values: /\.embed\.positions$/ },
  {
    name: "attention", list: "steps", of: "head", reads: "pair", acts: ["head", "block", "weight", "scale", "number"], chapter: "attention",
    values: /\.(attn|cross)\.(?!(heads|out)$|[qk]_norm\.)/, steps: ["qkv", "scores", "scaled", "masked", "softmax", "weighted"],
  },
  { name: "output", list: "steps", of: "part", reads: "query", acts: ["head", "number"], chapter: "heads", values: /\.(attn|cross)\.(heads|out)$/ },
  { name: "norm", list: "steps", of: "part", reads: "query", acts: ["number"], chapter: "norms", moments: true, values: /norm\.(mean|rstd|out)$|_sum$/ },
  { name: "ffn", list: "steps", of: "block", reads: "query", acts: ["block", "number"], chapter: "feed-forward", moments: true, values: /\.ffn\./ },
  { name: "vector", list: "steps", acts: ["number"], chapter: "encoder", values: /^head\.(pool|unit|first|second|mean|vector)/, when: makes(/^head\.(pool|unit)$/) },
  { name: "logits", list: "steps", reads: "position", answers: "one", chapter: "training", moments: true, values: /^head\./, when: makes(/^head\.logits$/) },
  { name: "heads", list: "whole", acts: ["head"], chapter: "heads" },
  { name: "residual", list: "whole", reads: "query", acts: ["block", "number"], chapter: "residuals", values: /\.resid_/ },
  { name: "lens", list: "whole", asks: "lens", reads: "position", answers: "one", chapter: "residuals", when: chooses },
  { name: "circuits", list: "whole", asks: "circuits", reads: "position", answers: true, chapter: "residuals" },
  { name: "examples", list: "whole", of: "head", answers: true, when: ({ kind, has_tokenizer, answers }) => kind !== "image" && has_tokenizer && ["examples", "export"].some((ask) => answers.includes(ask as Ask)) },
  { name: "geometry", list: "whole", of: "block", reads: "query", chapter: "encoder" },
  { name: "scale", list: "whole", of: "head", acts: ["scale"] },
  { name: "features", list: "whole", asks: "features", reads: "query", when: ({ features }) => Boolean(features?.length) },
  { name: "generation", list: "whole", asks: "generate", answers: true, chapter: "generation", when: ({ kind }) => kind !== "image" && kind !== "encoder" },
  { name: "patching", list: "whole", asks: "patching", reads: "position", answers: true, when: (about) => (about.plan.config.encoder ?? about.plan.config.decoder)!.input.kind === "tokens" && chooses(about) },
  { name: "steering", list: "whole", asks: "direction", when: ({ has_tokenizer, kind }) => kind !== "image" && has_tokenizer },
  { name: "difference", list: "whole", asks: "difference", answers: true },
  { name: "training", list: "whole", of: "head", reads: "pair", answers: true, chapter: "training", when: ({ history }) => history.length > 1 },
] as const satisfies readonly PlaceRow[];

export type PlaceName = (typeof ROWS)[number]["name"];
/** The steps of one attention, in the order of the formula. */
export type Step = Extract<(typeof ROWS)[number], { name: "attention" }>["steps"][number];
export type Place = PlaceRow & { name: PlaceName; steps?: readonly Step[] };

export const PLACES: Place[] = [...ROWS];
export const STEPS: readonly Step[] = PLACES.flatMap((place) => place.steps ?? []);

/** Adds the places of other packages, each of which asks the question of its name. */
export function addPlaces(names: readonly string[]): void {
  for (const name of names as PlaceName[]) if (!placeOf(name)) PLACES.push({ name, list: "whole", asks: name as Ask });
}

export function placeOf(name: PlaceName): Place {
  return PLACES.find((place) => place.name === name)!;
}

/** Whether this model has a place, and its host answers what the place asks. */
export function hasPlace(about: About, { asks, when }: Place): boolean {
  return (!asks || about.answers.includes(asks)) && (when?.(about) ?? true);
}
