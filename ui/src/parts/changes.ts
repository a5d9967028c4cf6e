/** What distinguishes B from A, in a few words. */

import { t } from "../i18n/index.svelte";
import type { Explorer } from "../state/explorer.svelte";

export function changesOf(state: Explorer): string {
  const { edits, change, other } = state.page;
  const parts: string[] = [];
  if (other && other.step !== undefined && other.text === state.page.reads.text) parts.push(t("b.step", { n: other.step ?? "" }));
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
