/** The table of contents of an exported file, as clearhead/explorer/export/contents.py writes it. */

import type { Answered, Ask, Asked } from "../../core/host";
import type { About, Change, Check, GenerateReply, HeadFacts, Plan, RunReply, RunRequest, TokenizeReply } from "../../core/protocol";
import type { Settings } from "../../engine/writing/sampling";

export interface FileDocument {
  format: string;
  /** The length of each part in characters. */
  parts: Record<string, number>;
  about: About;
  /** The command that opens the model. */
  command: string;
  tokenized: { text: string; target: boolean; reply: TokenizeReply }[];
  /** The whole model, if it is small. */
  live?: LiveModel;
  /** Recorded runs, if it is larger. */
  recorded?: RecordedRun[];
  /** The parts with answers of the model in Python: which questions, about a run, or one against another at positions. */
  held?: { run: RunRequest; corrupt?: RunRequest; at?: number[]; asks: string[]; part: string }[];
}

export interface LiveModel {
  /** Whether its passes take so long that a worker should compute them. */
  is_large: boolean;
  inputs: LiveInput[];
  plans: { scale: boolean; positions: Change["positions"] | string | null; plan: Plan }[];
  words: string[] | null;
  /** How the model writes; null if it writes nothing. */
  writing: Settings | null;
}

export interface LiveInput {
  run: RunRequest;
  /** Of a large model: the parts with the overview that Python has measured. */
  parts: Record<string, string>;
  /** The part with the parameters. */
  weights: string;
  reply: RunReply;
}

export interface RecordedRun {
  run: RunRequest;
  /** Names of parts in the file, for `run`, `lens`, `attribution`, `without`, `parameters` (those of positions), `values-…` and `overview.…`. */
  parts: Record<string, string>;
  /** The part that holds each address. */
  values: Record<string, string>;
  heads: Record<string, HeadFacts>;
  check: Check;
  /** What the model writes with the settings that a page begins with; of a model that writes nothing, nothing. */
  written: Partial<GenerateReply>;
  effects?: Record<string, number>;
}

/** Part `without`: of a language head tensors `ids` and `values` (n t k: log probabilities); of another `logits`. */
export interface WithoutHeads { sites: string[]; words: Record<string, string> }

/** Answers questions: each with a method of its name. */
export type Answers = {
  [A in Ask]?: (asked: Asked<A>, signal?: AbortSignal) => Answered<A> | Promise<Answered<A>>;
};
