/** An exercise as a page holds it, as lab/clearhead_lab/exercises/exercise.py writes it. */

import type { Change, Edit, StackName } from "../core/protocol";
import type { Term } from "./language";

/** What a learner hands in: edits and a change of the config, a number, or the number of an option. */
export interface Answer {
  edits?: Edit[];
  change?: Change;
  number?: number;
  choice?: number;
}

export interface Option { label: string; edits: Edit[]; change: Change; at: string }
export interface Allowed { at: string; do: Edit["do"][] }
export interface Wrong { name: string; when: Term; says: string }

export interface Exercise {
  name: string;
  title: string;
  task: string;
  /** The name of one of the set's models. */
  model: string;
  kind: "edits" | "choice" | "number";
  source: string;
  /** What the learner reads in the end: the answer, and why. */
  because: string;
  right: Term;
  opens: { text: string; target: string | null; view: string; layer: number; head: number };
  allows: Allowed[];
  changes: ("scale" | "positions")[];
  /** Slips in a number by name, and the factors that put them right. */
  slips: Record<string, number[]>;
  options: Option[];
  /** The tokens that each stack reads, by the name of the input. */
  inputs: Record<string, Partial<Record<StackName, number[]>>>;
  groups: Record<string, string[]>;
  wrong: Wrong[];
}

/** Everything on a page but the models, which are exported files by their names (host/baked/document.ts). */
export interface ExerciseSet {
  format: string;
  name: string;
  title: string;
  version: string;
  /** The version of clearhead that wrote the page. */
  clearhead: string;
  models: string[];
  exercises: Exercise[];
}
