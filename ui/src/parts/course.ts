/** Links to the chapters of the course, on a page that knows where they lie: `<meta name="clearhead-course" content="../course/">`. */

import type { Page } from "../state/page";
import { placeOf } from "../state/places";

/** A chapter by its name; null where no course lies beside the page. */
export function chapterAt(name: string): string | null {
  const folder = typeof document === "undefined" ? undefined : document.querySelector<HTMLMetaElement>("meta[name=clearhead-course]")?.content;
  return folder === undefined ? null : `${folder}${name}.html`;
}

/** The chapter about the place of a page. */
export function chapterOf({ view, part, step }: Pick<Page, "view" | "part" | "step">): string | null {
  const { chapter } = placeOf(view);
  if (chapter === undefined) return null;
  if (view !== "attention") return chapterAt(chapter);
  return chapterAt(part === "cross" ? "translation" : step === "masked" ? "masks" : chapter);
}
