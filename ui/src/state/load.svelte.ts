/** A promise as state: the last answer stays until the next one arrives, and an outdated answer is given up. */

import { getContext, setContext } from "svelte";
import { messageOf } from "../core/errors";

/** How many answers the components of a place wait for, and why some did not come. */
export class Waiting {
  count = $state(0);
  reasons = $state.raw<string[]>([]);
  /** The same: an effect that ends reads what a state was before. */
  #count = 0;
  #reasons: string[] = [];

  add(n: number): void {
    this.count = this.#count += n;
  }

  refuse(reason: string): () => void {
    this.reasons = this.#reasons = [...this.#reasons, reason];
    return () => void (this.reasons = this.#reasons = this.#reasons.filter((one) => one !== reason));
  }
}

const KEY = Symbol("waiting");

export function provideWaiting(): Waiting {
  return setContext(KEY, new Waiting());
}

export interface Loaded<T> { readonly value: T | null; readonly error: string | null }

/** `make` gets a signal that tells when nobody waits for its answer any more. */
export function load<T>(make: (signal: AbortSignal) => Promise<T> | null): Loaded<T> {
  const waiting = getContext<Waiting | undefined>(KEY);
  let value = $state.raw<T | null>(null);
  let error = $state<string | null>(null);
  $effect(() => {
    const left = new AbortController();
    let forget: (() => void) | undefined;
    const promise = started(() => make(left.signal));
    if (!promise) {
      [value, error] = [null, null];
      return;
    }
    let isOpen = true;
    const close = (): void => {
      if (isOpen) waiting?.add(-1);
      isOpen = false;
    };
    waiting?.add(1);
    promise.then(
      (answer) => {
        if (isOpen) [value, error] = [answer, null];
        close();
      },
      (reason: unknown) => {
        if (isOpen) {
          [value, error] = [null, messageOf(reason)];
          forget = waiting?.refuse(error);
        }
        close();
      },
    );
    return () => {
      close();
      forget?.();
      left.abort();
    };
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
