/** Tables beside pictures, for screen readers, are updated when the browser is idle. */

import { untrack } from "svelte";

const MOST = 400;

/** A value as it was when the browser was last idle; null before the first time. */
export function late<T>(of: () => T): { readonly value: T | null } {
  let value = $state.raw<T | null>(null);
  $effect(() => {
    const next = of();
    return whenIdle(() => untrack(() => (value = next)));
  });
  return {
    get value() { return value; },
  };
}

/** Returns a function that cancels it. */
function whenIdle(call: () => void): () => void {
  if (typeof requestIdleCallback === "undefined") {
    const timer = setTimeout(call, 50);
    return () => clearTimeout(timer);
  }
  const handle = requestIdleCallback(call, { timeout: MOST });
  return () => cancelIdleCallback(handle);
}
