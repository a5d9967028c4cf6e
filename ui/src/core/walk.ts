/** A walk through a model as data: stops of place, sentence and question. A walk is a file of src/walks/, or comes with
 *  the model from the host (lab/clearhead_lab/walks).
 *
 * Every text and every address is a template. Names in braces are filled in from the model: see state/walk.ts.
 */

import type { Change, Edit, StackName } from "./protocol";

declare module "./protocol" {
  interface About {
    /** Walks that came with this model; absent for none. */
    walks?: Walk[];
  }
}

export interface Walk {
  name: string;
  /** A text, or its key in the catalogue; so are `say`, `ask`, `because` and choices. */
  title: string;
  stops: Stop[];
  /** The text that the walk is about. Without it the walk is on whatever the reader types. */
  text?: string;
}

export interface Stop {
  name: string;
  /** As fields, or as the page's address has it, from its "#" on: a view with its text. */
  place: StopPlace | string;
  /** One sentence. */
  say: string;
  /** The heading; without it the name of the place. */
  title?: string;
  /** Which models have this stop, if not all. */
  when?: When;
  /** What the sentence takes from the model, by its name in the sentence. */
  numbers?: Record<string, Reading>;
  question?: Question;
  printed?: Printed[];
  /** The address of a chapter that says more, or the name of one of the course. By default that of the place. */
  chapter?: string;
}

/** Where a stop looks. What is absent is as on a plain page. */
export interface StopPlace {
  view: string;
  step?: string;
  stack?: StackName | "first" | "last";
  /** Negative ones count from the last. */
  layer?: number;
  part?: "attn" | "cross";
  /** "most": the head that gives the largest share of the query's attention to another word. */
  head?: number | "most";
  /** "asked": the position whose answer is sought; "word": the last token that stands for text. */
  query?: number | "asked" | "word";
  /** "largest": the key with the largest share; "most": that of another word, if there is one. */
  key?: number | "most" | "largest";
  dim?: number;
  /** A second text, beside the first. */
  other?: string;
  edits?: Edit[];
  change?: Change;
}

/** Every condition that is given must hold, for the stack of the stop. */
export interface When {
  kinds?: string[];
  /** Whether texts are cut by a tokenizer; without one they are numbers of tokens. */
  tokenizer?: boolean;
  positions?: string[];
  heads?: string[];
  norms?: string[];
  causal?: boolean;
  /** Whether scores are divided by the root of the head's width, and nothing else is done to them. */
  scaled?: boolean;
  /** Whether a number for the distance is added to scores. */
  biased?: boolean;
  /** Whether a norm stands before the first block's attention. */
  normed?: boolean;
  /** Whether attention and feed-forward read the same vector. */
  parallel?: boolean;
  /** Whether there is more than one block. */
  deep?: boolean;
  /** Whether a block has more than one head. */
  many?: boolean;
}

/** The number at an address, or a number that is made of all those there. */
export interface Reading {
  at: string;
  /** chance: the softmax share of what the model says at the stop; active: the share above 0; most: the largest. */
  take?: "length" | "mean" | "sum" | "most" | "active" | "chance";
  as?: "percent";
  digits?: number;
  /** Of the run with these edits; by default of the run that the stop shows. */
  edits?: Edit[];
}

export interface Question {
  ask: string;
  /** Texts; "keys": tokens that the query may look at; "words": what the model holds likeliest. */
  choices: string[] | "keys" | "words";
  right: Right;
  /** Said after a choice, with the numbers of the stop and {right}, the right choice. */
  because: string;
  numbers?: Record<string, Reading>;
}

/** The right choice: its number; the key with the largest value at an address; the likeliest word; or whether the second
 *  reading is larger than the first (choice 0) or not (choice 1). */
export type Right = number | { largest: string } | "likeliest" | { grows: [Reading, Reading] };

/** What a document prints, beside what is right. */
export interface Printed {
  /** The record of the worked examples. */
  record: string;
  source: string;
  title: string;
  verdict: "reproduces" | "rounding" | "wrong" | "nothing printed" | "cannot be checked";
  /** Rows of numbers as printed, a statement, or null for nothing. */
  printed: number[][] | string | null;
  decimals: number | null;
  /** The value at an address of the run that the stop shows; or numbers or words that were computed beside it. */
  at?: string;
  right?: number[][] | string;
  rows?: string[];
  /** Why the printed numbers are wrong, or what the document does not give. */
  cause: string;
}
