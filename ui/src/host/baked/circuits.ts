/** The circuits that a file holds: Python answered each question when it wrote the file (explorer/export/circuits.py). */

import type { Asked, RunRequest } from "../../core/protocol";
import { t } from "../../i18n/index.svelte";
import { heldInput } from "./ask";
import type { Answers, FileDocument } from "./document";
import type { Parts } from "./parts";

export function circuits(document: FileDocument, parts: Parts): Answers {
  const held = document.circuits ?? [];
  const answer = (ask: string) => async ({ run, corrupt, most: _, terms: __, ...rest }: Asked<"circuits"> & { most?: number; terms?: number }): Promise<never> => {
    const own = held.filter((one) => heldInput([one], run, document.about)), key = JSON.stringify([ask, ...Object.entries(rest).sort()]);
    const found = own.find((one) => heldInput([{ run: one.corrupt }], corrupt, document.about));
    const json = found && (await parts.read<Record<string, object>>(found.part)).json[key];
    if (!json) throw new Error(t("file.circuit", { texts: held.map((one) => `${named(one.run)} / ${named(one.corrupt)}`).join(", "), command: document.command }));
    return { json, tensors: new Map() } as never;
  };
  return Object.fromEntries(["circuits", "edges", "faithfulness", "edge"].map((ask) => [ask, answer(ask)]));
}

function named({ text }: RunRequest): string {
  return `“${text}”`;
}
