/** A promise as state: the last answer stays until the next one arrives, and an outdated answer is dropped. */

import { messageOf } from "../core/errors";

export interface Loaded<T> { readonly value: T | null; readonly error: string | null }

export function load<T>(make: () => Promise<T> | null): Loaded<T> {
  let value = $state.raw<T | null>(null);
  let error = $state<string | null>(null);
  $effect(() => {
    const promise = started(make);
    if (!promise) {
      [value, error] = [null, null];
      return;
    }
    let current = true;
    promise.then(
      (answer) => {
        if (current) [value, error] = [answer, null];
      },
      (reason: unknown) => {
        if (current) [value, error] = [null, messageOf(reason)];
      },
    );
    return () => void (current = false);
  });
  return {
    get value() { return value; },
    get error() { return error; },
  };
}

/** What throws at once is an error like any other. */
function started<T>(make: () => Promise<T> | null): Promise<T> | null {
  try {
    return make();
  } catch (error) {
    return Promise.reject(error instanceof Error ? error : new Error(String(error)));
  }
}
