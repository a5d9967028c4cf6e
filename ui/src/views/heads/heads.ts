/** All heads of a run: where they are, and how they are ordered. */

import type { HeadFacts, StackName } from "../../core/protocol";
import type { Part } from "../../state/page";
import type { Run } from "../../parts/kit";

export interface Head {
  stack: StackName;
  layer: number;
  part: Part;
  head: number;
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
  return run.plan.ops.flatMap(({ out }): Head[] => {
    const match = /^((encoder|decoder)\.blocks\.(\d+)\.(attn|cross))\.weights$/.exec(out);
    if (!match) return [];
    const [, module = "", stack, layer, part] = match;
    return Array.from({ length: run.reply.facts[out]?.shape[0] ?? 0 }, (_, head) => ({
      stack: stack as StackName, layer: Number(layer), part: part as Part, head, module,
      weights: `${out}[h=${head}]`, z: `${module}.z[h=${head}]`,
    }));
  });
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
