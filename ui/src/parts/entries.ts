/** The places of the page as a list that a reader chooses from. */

import { t, walking, type Explorer } from "./kit";
import { hasPlace, PLACES, type Place, type Step } from "../state/places";

export interface Entry { place: Place; step?: Step }

/** The entries that this model has, or that is open, and, in Learn, that have been introduced. */
export function entries(app: Explorer, list: Place["list"]): Entry[] {
  const way = walking(app);
  return PLACES.filter((place) => place.list === list && (hasPlace(app.about, place) || place.name === app.page.view) && way.introduced(place.name))
    .flatMap((place) => place.steps?.filter((step) => way.introduced(place.name, step as Step)).map((step): Entry => ({ place, step: step as Step })) ?? [{ place }]);
}

export function isHere(app: Explorer, { place, step }: Entry): boolean {
  return place.name === app.page.view && (!step || (step === app.page.step && !app.noCross));
}

/** Goes to a place, and shows its beginning where the reader has scrolled past it: the list of places is long. */
export function open(app: Explorer, { place, step }: Entry, main = document.querySelector(".clearhead main")): void {
  app.go({ view: place.name, ...(step && { step }) });
  if (main && main.getBoundingClientRect().top < 0) main.scrollIntoView({ block: "start" });
}

export function nameOf({ place, step }: Entry): string {
  return t(step ? `step.${step}` : `view.${place.name}`);
}
