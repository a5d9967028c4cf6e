/** The places of the page: the list at the left, links, crumbs, and the way from a number to its place follow from it.
 *
 * A new place is a row here, its component (see views/index.ts), and its name in the catalogues: `view.NAME`.
 */

import type { Ask } from "../core/host";
import type { About } from "../core/protocol";

interface PlaceRow {
  name: string;
  /** Which list it is in: the steps from the input to the answer, or what shows all of the model at once. */
  list: "steps" | "whole";
  /** The steps that it has itself, each an entry of the list. */
  steps?: readonly string[];
  /** The chapter of the course that is about it (lab/clearhead_lab/course/pages), if there is one. */
  chapter?: string;
  /** What of the model it shows, if not all: the crumbs lead there. */
  of?: "block" | "part" | "head";
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
  { name: "image", list: "steps", chapter: "images", when: ({ kind }) => kind === "image" },
  { name: "tokens", list: "steps", chapter: "tokens", when: ({ kind }) => kind !== "image" },
  { name: "embedding", list: "steps", chapter: "embeddings", moments: true, values: /\.embed\.(?!positions$)/ },
  { name: "position", list: "steps", chapter: "positions", values: /\.embed\.positions$/ },
  {
    name: "attention", list: "steps", chapter: "attention", of: "head", values: /\.(attn|cross)\.(?!(heads|out)$|[qk]_norm\.)/,
    steps: ["qkv", "scores", "scaled", "masked", "softmax", "weighted"],
  },
  { name: "output", list: "steps", chapter: "heads", of: "part", values: /\.(attn|cross)\.(heads|out)$/ },
  { name: "norm", list: "steps", chapter: "residuals", of: "block", moments: true, values: /norm\.(mean|rstd|out)$|_sum$/ },
  { name: "ffn", list: "steps", chapter: "feed-forward", of: "block", moments: true, values: /\.ffn\./ },
  { name: "vector", list: "steps", chapter: "encoder", values: /^head\.(pool|unit|first|second|mean|vector)/, when: makes(/^head\.(pool|unit)$/) },
  { name: "logits", list: "steps", chapter: "training", moments: true, values: /^head\./, when: makes(/^head\.logits$/) },
  { name: "heads", list: "whole", chapter: "heads" },
  { name: "residual", list: "whole", chapter: "residuals", values: /\.resid_/ },
  { name: "lens", list: "whole", asks: "lens", chapter: "residuals", when: chooses },
  { name: "circuits", list: "whole", asks: "circuits", chapter: "residuals" },
  { name: "examples", list: "whole", of: "head", when: ({ kind, has_tokenizer, answers }) => kind !== "image" && has_tokenizer && ["examples", "export"].some((ask) => answers.includes(ask as Ask)) },
  { name: "geometry", list: "whole", chapter: "encoder" },
  { name: "scale", list: "whole", of: "head" },
  { name: "features", list: "whole", asks: "features", when: ({ features }) => Boolean(features?.length) },
  { name: "generation", list: "whole", asks: "generate", chapter: "generation", when: ({ kind }) => kind !== "image" && kind !== "encoder" },
  { name: "patching", list: "whole", asks: "patching", when: (about) => (about.plan.config.encoder ?? about.plan.config.decoder)!.input.kind === "tokens" && chooses(about) },
  { name: "steering", list: "whole", asks: "direction", when: ({ has_tokenizer, kind }) => kind !== "image" && has_tokenizer },
  { name: "difference", list: "whole", asks: "difference" },
  { name: "training", list: "whole", chapter: "training", when: ({ history }) => history.length > 1 },
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
