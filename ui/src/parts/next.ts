/** What to do or look at next in a place: what decides the answer, as it was measured; else what follows on this place. */

import type { PlaceName } from "../state/places";
import { hasPlace, placeOf } from "../state/places";
import { answerAt, percent, placeName, t, textsOf, tokensOf, wordOf, type Explorer } from "./kit";

const FOLLOWS: Partial<Record<PlaceName, PlaceName>> = {
  tokens: "embedding", embedding: "attention", position: "attention", attention: "output", output: "residual", norm: "ffn", ffn: "lens", residual: "lens", vector: "logits", lens: "logits", generation: "logits", examples: "attention", scale: "attention", training: "attention",
};

export function nextOf(app: Explorer): { said: string; act: () => void } | null {
  const { a, about, at, decided, page } = app, measured = decided?.run === a ? decided.head : null;
  const fell = measured && answerAt(app).position === decided?.position && percent(measured.p) !== percent(measured.was.p) ? measured : null;
  const told = decided?.told, values = fell && told && { head: placeName(about.plan, told), word: wordOf(fell.was.word), from: percent(fell.was.p), to: percent(fell.p) };
  const to = FOLLOWS[page.view];
  if (fell && told && values && !app.b) {
    const isHere = fell.z === `${at}.z[h=${page.head}]`;
    if (page.view === "attention" && isHere) return { said: t("next.off", values), act: () => void app.edit(fell.z, { do: "zero" }) };
    if (page.view === "attention" || !to) return { said: t("next.head", values), act: () => app.go({ ...told, view: "attention", step: "softmax" }) };
  }
  if (!to || !hasPlace(about, placeOf(to))) return null;
  return { said: t(`next.${to}`, { word: wordOf(textsOf(tokensOf(app, page.stack))[page.query] ?? ""), head: page.head }), act: () => app.go({ view: to }) };
}
