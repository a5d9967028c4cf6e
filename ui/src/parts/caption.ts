/** Where the page looks, in words: in its heading, and as the lines under a picture. */

import { describeModel, modelName, placeName, t, tokensOf, wordOf, type Explorer } from "./kit";
import { placeOf } from "../state/places";
import { changesOf } from "./changes";
import { nameOf } from "./entries";

/** What of the model the place shows, in words; "" for all of it. */
export function partOf(app: Explorer): string {
  const { page, about: { plan } } = app, { of } = placeOf(page.view), { stack, layer, part, head } = page;
  const shown = page.view === "overview" ? page.zoom : of;
  if (shown === "word") return wordOf(tokensOf(app, stack)[page.query]?.text ?? "");
  if (shown !== "block" && shown !== "part" && shown !== "head") return "";
  return placeName(plan, { stack, layer, ...(shown !== "block" && { part }), ...(shown === "head" && { head }) });
}

/** Characters of a text in a caption. */
const LONGEST = 120;

/** The place and the run; the text; the model. */
export function captionOf(app: Explorer): string[] {
  const { about, page, side } = app, place = placeOf(page.view);
  const where = [partOf(app), nameOf(page.view === "attention" ? { place, step: page.step } : { place })].filter(Boolean);
  const run = side === "a" ? [] : [side === "b" ? t("side.b", { name: changesOf(app) }) : "B − A"];
  const texts = [page.reads.text, app.shown?.reply.target].filter(Boolean).map((text) => `“${[...text!].slice(0, LONGEST).join("")}”`);
  return [
    [...where, ...run].join(" › "),
    ...(texts.length ? [texts.join(" → ")] : []),
    `${modelName(about.name)} · ${describeModel(about)} · clearhead`,
  ];
}
