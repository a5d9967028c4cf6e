/** Which of the runs that a file holds a request is about. */

import type { About, Change, RunRequest } from "../../core/protocol";

/** The run that reads the same. For an encoder-decoder, no target means the target that the model wrote. */
export function heldInput<T extends { run: RunRequest }>(held: readonly T[], run: RunRequest, about: About): T | undefined {
  const step = (of: RunRequest): number | null => of.step ?? about.step;
  const writes = about.kind === "encoder-decoder";
  return held.find(({ run: one }) =>
    one.text === run.text && (one.image ?? null) === (run.image ?? null) && step(one) === step(run) &&
    ((run.target === null && writes) || one.target === run.target));
}

export function changeOf(run: RunRequest, about: About): { scale: boolean; positions: string | null } {
  const { scale = true, positions }: Change = run.change ?? {};
  return { scale: scale || !about.changes.scale, positions: positions === about.changes.positions[0] ? null : (positions ?? null) };
}
