/** What an explorer has one of, made when it is first asked for. */

import type { Explorer } from "./explorer.svelte";

export function oneOfEach<T>(Made: new (app: Explorer) => T): (app: Explorer) => T {
  const known = new WeakMap<Explorer, T>();
  return (app) => {
    const found = known.get(app) ?? new Made(app);
    known.set(app, found);
    return found;
  };
}
