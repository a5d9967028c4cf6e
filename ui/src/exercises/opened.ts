/** What a page of exercises holds: the set, and for each model an exported file's host and the judge's view of it. */

import type { Host } from "../core/host";
import { BakedHost } from "../host/baked";
import { parameters } from "../host/baked/parameters";
import { Parts, type Find } from "../host/baked/parts";
import type { ExerciseSet } from "../judge/exercise";
import type { Subject } from "../judge/judge";

export interface Opened {
  set: ExerciseSet;
  hosts: ReadonlyMap<string, Host>;
  subjects: ReadonlyMap<string, Subject>;
}

/** Reads the parts of a page. Rejects with one line if the file is not whole. */
export async function open(find: Find): Promise<Opened> {
  const { json: set } = await new Parts(find).read<ExerciseSet>("exercises");
  const of = (model: string): Find => (name) => find(`${model}-${name}`);
  const subjects = await Promise.all(set.models.map(async (model) => [model, await subjectOf(new Parts(of(model)))] as const));
  return { set, hosts: new Map(set.models.map((model) => [model, new BakedHost(of(model))])), subjects: new Map(subjects) };
}

export async function subjectOf(parts: Parts): Promise<Subject> {
  const { live, about } = await parts.document();
  if (!live) throw new Error("expected a model in the file, got its answers only");
  const plans = live.plans.map(({ scale, positions, plan }) => ({ scale, positions: positions ?? null, plan }));
  return { weights: await parameters(parts, live.inputs[0]!.weights), plans, positions: about.changes.positions[0] ?? "none" };
}
