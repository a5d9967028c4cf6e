/** Where a place begins: what is seen best there, unless the reader has chosen where to look. */

import { untrack } from "svelte";
import type { Explorer } from "../parts/kit";
import type { Page } from "../state/page";

/** Goes to `to` once it is known. What was chosen before comes back when the place is left, or `to` is null again. */
export function begins(app: Explorer, to: () => Partial<Page> | null | undefined): void {
  const isKnown = $derived(Boolean(to()));
  $effect(() => {
    if (!isKnown) return;
    const at = untrack(to)!, names = Object.keys(at) as (keyof Page)[], before = untrack(() => app.isBegun && Object.fromEntries(names.map((name) => [name, app.page[name]])) as Partial<Page>);
    if (!before) return;
    untrack(() => app.go(at));
    // An effect that ends reads what a state was before, and would write the place that is left into the link.
    return () => queueMicrotask(() => names.every((name) => app.page[name] === at[name]) && app.go(before));
  });
}

/** The word of the story, about which the places of one word begin. */
export const wordTold = ({ a, decided }: Explorer): Partial<Page> | null => (decided?.run === a ? (decided?.word ?? null) : null);
