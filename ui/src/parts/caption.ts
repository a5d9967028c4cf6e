/** Where the page looks, in words: as crumbs, and as the lines under a picture. */

import { describeModel, modelName, partName, t, tokensOf, type Explorer } from "./kit";
import { placeOf } from "../state/places";
import { changesOf } from "./changes";
import { nameOf } from "./entries";
import { wordOf } from "./walk";

export function crumbsOf(app: Explorer): string[] {
  const { page, about: { plan } } = app;
  const { of } = placeOf(page.view), block = [t(`stack.${page.stack}`), t("crumb.layer", { n: page.layer })];
  if (page.view === "overview") {
    const head = [...block, partName(plan, page.stack, page.part), t("crumb.head", { n: page.head })];
    return { "": [t("view.overview")], word: [wordOf(tokensOf(app, page.stack)[page.query]?.text ?? "")], block, head }[page.zoom];
  }
  return [
    ...(of ? block : []),
    ...(of === "part" || of === "head" ? [partName(plan, page.stack, page.part)] : []),
    of === "head" ? t("crumb.head", { n: page.head }) : t(`view.${page.view}`),
  ];
}

/** Characters of a text in a caption. */
const LONGEST = 120;

/** The place and the run; the text; the model. */
export function captionOf(app: Explorer): string[] {
  const { about, page, side } = app, place = placeOf(page.view);
  const step = place.of === "head" ? [nameOf(page.view === "attention" ? { place, step: page.step } : { place })] : [];
  const run = side === "a" ? [] : [side === "b" ? t("side.b", { name: changesOf(app) }) : "B − A"];
  const texts = [page.reads.text, app.shown?.reply.target].filter(Boolean).map((text) => `“${[...text!].slice(0, LONGEST).join("")}”`);
  return [
    [...crumbsOf(app), ...step, ...run].join(" › "),
    ...(texts.length ? [texts.join(" → ")] : []),
    `${modelName(about.name)} · ${describeModel(about)} · clearhead`,
  ];
}
