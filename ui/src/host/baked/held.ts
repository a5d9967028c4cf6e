/** What a file holds of questions that need the model in Python: it answered each when it wrote the file. */

import type { RunRequest } from "../../core/protocol";
import { t } from "../../i18n/index.svelte";
import { heldInput } from "./ask";
import type { Answers, FileDocument } from "./document";
import type { Parts } from "./parts";

interface AnyAsked { run: RunRequest; corrupt?: RunRequest; [field: string]: unknown }

/** How many a page asks for, and what it wants besides: a reply has all that the file holds. */
const MORE = ["most", "terms", "k", "also"];

export function answersHeld({ held = [], about, command }: FileDocument, parts: Parts): Answers {
  const answer = (ask: string) => async ({ run, corrupt, ...rest }: AnyAsked): Promise<never> => {
    const key = JSON.stringify([ask, ...Object.entries(rest).filter(([name]) => !MORE.includes(name)).sort()]);
    const found = held.find((one) => one.asks.includes(ask) && !run.edits.length && heldInput([one], run, about)
      && (!corrupt || heldInput([{ run: one.corrupt! }], corrupt, about)));
    const told = found ? Object.entries((await parts.read<Record<string, object>>(found.part)).json) : [];
    const json = told.find(([asked]) => JSON.stringify(JSON.parse(asked)) === key)?.[1];  // Python writes 4.6e-05.
    if (json) return { json, tensors: new Map() } as never;
    const texts = held.filter((one) => one.asks.includes(ask)).map(({ run, corrupt, at }) =>
      `“${run.text}”${corrupt ? ` / “${corrupt.text}”` : ""}${at ? ` (t = ${at.join(", ")})` : ""}`);
    throw new Error(t("file.held", { texts: texts.join(", "), command }));
  };
  return Object.fromEntries([...new Set(held.flatMap((one) => one.asks))].map((ask) => [ask, answer(ask)]));
}
