/** What an exported file says of its parts: clearhead/explorer/baking.py. */

import type {
  About, Answered, Ask, Asked, Change, HeadFacts, Plan, RunReply, RunRequest, TokenizeReply,
} from "../../core/protocol";

export interface FileDocument {
  format: string;
  /** How many characters each part has. */
  parts: Record<string, number>;
  about: About;
  /** What opens the model itself. */
  command: string;
  tokenized: { text: string; target: boolean; reply: TokenizeReply }[];
  /** Of a small model: all of it. */
  live?: LiveModel;
  /** Of a larger one: what it said. */
  recorded?: RecordedRun[];
}

export interface LiveModel {
  inputs: LiveInput[];
  plans: { scale: boolean; positions: Change["positions"] | string | null; plan: Plan }[];
  words: string[] | null;
}

export interface LiveInput {
  run: RunRequest;
  /** The part with the parameters. */
  weights: string;
  reply: RunReply;
}

export interface RecordedRun {
  run: RunRequest;
  /** `run`, `lens`, `without`, `parameters` (those of positions), `values-…`, and what the file calls them. */
  parts: Record<string, string>;
  /** By address, which of them holds it. */
  values: Record<string, string>;
  heads: Record<string, HeadFacts>;
  effects?: Record<string, number>;
}

/** Part `without`: of a language head tensors `ids` and `values` (n t k: log probabilities); of another `logits`. */
export interface WithoutHeads { sites: string[]; words: Record<string, string> }

/** What answers questions: each by a method of its name. */
export type Answers = {
  [A in Ask]?: (asked: Asked<A>, signal?: AbortSignal) => Answered<A> | Promise<Answered<A>>;
};
