/** Where the page looks, in words: as crumbs, and as the lines under a picture. */

import { t } from "../i18n/index.svelte";
import type { Explorer } from "../state/explorer.svelte";
import { placeOf } from "../state/places";
import { changesOf } from "./changes";
import { describeModel, modelName, partName } from "./describe";
import { nameOf } from "./entries";

export function crumbsOf({ page, about: { plan } }: Explorer): string[] {
  const { of } = placeOf(page.view);
  return [
    ...(of ? [t(`stack.${page.stack}`), t("crumb.layer", { n: page.layer })] : []),
    ...(of === "part" || of === "head" ? [partName(plan, page.stack, page.part)] : []),
    of === "head" ? t("crumb.head", { n: page.head }) : t(`view.${page.view}`),
  ];
}

/** The place and the run; the text; the model. */
export function captionOf(app: Explorer): string[] {
  const { about, page, side } = app, place = placeOf(page.view);
  const step = place.of === "head" ? [nameOf(page.view === "attention" ? { place, step: page.step } : { place })] : [];
  const run = side === "a" ? [] : [side === "b" ? t("side.b", { name: changesOf(app) }) : "B − A"];
  const target = app.shown?.reply.target, { text } = page.reads, other = page.other?.text;
  return [
    [...crumbsOf(app), ...step, ...run].join(" › "),
    ...(text ? [`“${text}”${target ? ` → “${target}”` : ""}${other ? ` (B: “${other}”)` : ""}`] : []),
    `${modelName(about)} · ${describeModel(about)} · clearhead`,
  ];
}
