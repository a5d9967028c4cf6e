/** Which of the runs that a file holds a request is about. */

import type { Asked, Reply } from "../../core/host";
import type { About, Change, OverviewReply, RunRequest } from "../../core/protocol";
import type { RecordedRun } from "./document";
import type { Parts } from "./parts";

/** The run that reads the same. For an encoder-decoder, no target means the target that the model wrote. */
export function heldInput<T extends { run: RunRequest }>(held: readonly T[], run: RunRequest, about: About): T | undefined {
  const step = (of: RunRequest): number | null => of.step ?? about.step;
  const writes = about.kind === "encoder-decoder";
  return held.find(({ run: one }) =>
    one.text === run.text && (one.image ?? null) === (run.image ?? null) && step(one) === step(run) &&
    ((run.target === null && writes) || one.target === run.target));
}

/** The run with the same edits and changes. */
export function heldRun<T extends { run: RunRequest }>(held: readonly T[], run: RunRequest, about: About): T | undefined {
  const changes = (one: RunRequest): string => JSON.stringify([one.edits, changeOf(one, about)]);
  return heldInput(held.filter((one) => changes(one.run) === changes(run)), run, about);
}

/** The part of an overview that was measured before, at the position that it has. */
export async function heldOverview({ parts: names }: Pick<RecordedRun, "parts">, { part, position }: Asked<"overview">, parts: Parts): Promise<Reply<OverviewReply> | null> {
  const name = names[`overview.${part}`], found = name === undefined ? null : await parts.read<OverviewReply>(name);
  return found && (position ?? found.json.position) === found.json.position ? found : null;
}

export function changeOf(run: RunRequest, about: About): { scale: boolean; positions: string | null } {
  const { scale = true, positions }: Change = run.change ?? {};
  return { scale: scale || !about.changes.scale, positions: positions === about.changes.positions[0] ? null : (positions ?? null) };
}
