/** What distinguishes B from A, in a few words. */

import { stepName, t, type Explorer } from "./kit";
import type { Edit } from "../core/protocol";
import { placeOf, type Control } from "../state/places";

/** Whether something can be chosen or changed here: a number only once one is looked at. */
export function acts({ page, focus, about, shown }: Explorer): boolean {
  const { of, acts = [] } = placeOf(page.view), is: Partial<Record<Control, boolean>> = { number: focus !== null && focus.path in (shown?.reply.facts ?? {}), positions: about.changes.positions.length > 1, scale: about.changes.scale };
  return of === "head" || of === "part" || acts.some((one) => is[one] ?? true);
}

/** A row of weights after the page's edits of it and of its cells, in their order; `at` is the row's address. */
export function editedRow(row: readonly number[], at: string, edits: readonly Edit[]): number[] {
  const cell = `${at.slice(0, -1)},s=`;
  return edits.reduce<number[]>((now, { at: where, do: what, value }) => {
    if (what !== "set") return now;
    if (where === at && Array.isArray(value)) return value;
    if (where.startsWith(cell) && typeof value === "number") return now.map((x, i) => (i === Number(where.slice(cell.length, -1)) ? value : x));
    return now;
  }, [...row]);
}

export function changesOf(state: Explorer): string {
  const { edits, change, other } = state.page;
  const parts: string[] = [];
  if (other?.step !== undefined && other.text === state.page.reads.text) parts.push(stepName(state.about, other.step ?? state.about.step ?? 0));
  else if (other) parts.push(t("b.other"));
  const heads = edits.filter((one) => one.do === "zero" && /\.z\[h=\d+\]$/.test(one.at));
  for (const one of heads.slice(0, 2)) parts.push(t("b.head_off", { n: /h=(\d+)/.exec(one.at)?.[1] ?? "" }));
  const rest = edits.length - Math.min(heads.length, 2);
  if (rest === 1) parts.push(t("b.edit"));
  else if (rest > 1) parts.push(t("b.edits", { n: rest }));
  if (change.scale === false) parts.push(t("b.unscaled"));
  if (change.positions) parts.push(t("b.positions", { kind: t(`positions.${change.positions}`) }));
  return parts.length ? parts.join(", ") : t("b.nothing");
}
