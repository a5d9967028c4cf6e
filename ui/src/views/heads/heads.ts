/** All heads of a run: where they are, and how they are ordered. */

import type { HeadFacts } from "../../core/protocol";
import { attentionsOf, type Place } from "../../state/telling";
import type { Run } from "../../parts/kit";

export interface Head extends Place {
  /** The address of its attention, without the index of the head. */
  module: string;
  /** With that index: its weights (the key of its statistics), and its output (which an edit switches off). */
  weights: string;
  z: string;
}

export type Order = "place" | "effect" | "kind";
const HEAD_KINDS = ["previous", "same", "next", "first", "uniform", "other"] as const;

export interface Group { key: string; heads: Head[] }

/** Every head of every attention, in the order of the ops. */
export function headsOf(run: Run): Head[] {
  return attentionsOf(run).flatMap(({ at: module, ...place }) => Array.from({ length: run.reply.facts[`${module}.weights`]?.shape[0] ?? 0 }, (_, head): Head =>
    ({ ...place, head, module, weights: `${module}.weights[h=${head}]`, z: `${module}.z[h=${head}]` })));
}

export function grouped(
  heads: readonly Head[], order: Order, effects: ReadonlyMap<string, number>, facts: Readonly<Record<string, HeadFacts>>,
): Group[] {
  const effect = (head: Head): number => effects.get(head.z) ?? -1;
  const byEffect = (some: readonly Head[]): Head[] => [...some].sort((one, other) => effect(other) - effect(one));
  if (order === "effect") return [{ key: "all", heads: byEffect(heads) }];
  if (order === "kind") {
    const of = (head: Head): string => facts[head.weights]?.kind ?? "other";
    const groups = HEAD_KINDS.map((key) => ({ key, heads: byEffect(heads.filter((head) => of(head) === key)) }));
    return groups.filter((group) => group.heads.length > 0);
  }
  const modules = [...new Set(heads.map((head) => head.module))];
  return modules.map((key) => ({ key, heads: heads.filter((head) => head.module === key) }));
}
