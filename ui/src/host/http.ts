/** Questions over HTTP, to the server that served the page. */

import type { Answered, Ask, Asked, Failure, Host } from "../core/host";
import { t } from "../i18n/index.svelte";
import { readReply } from "./reply";

/** The token that this page was opened with is another server's. */
const UNKNOWN = 401;

export class HttpHost implements Host {
  onlost: (() => void) | null = null;

  /** `script` loads a module of the server, which is not bundled. */
  constructor(readonly script: NonNullable<Host["script"]>) {}

  async ask<A extends Ask>(ask: A, asked: Asked<A>, signal?: AbortSignal): Promise<Answered<A>> {
    const response = await fetch("/ask", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ ask, ...asked }),
      signal: signal ?? null,
    }).catch((error: unknown) => {
      signal?.throwIfAborted();
      this.onlost?.();
      // The browser's own message does not help a reader.
      throw new Error(t("error.no_answer"), { cause: error });
    });
    if (response.status === UNKNOWN) {
      this.onlost?.();
      throw new Error(t("error.restarted"));
    }
    if (!response.ok) throw new Error(await failure(response));
    return readReply(await response.arrayBuffer());
  }
}

async function failure(response: Response): Promise<string> {
  try {
    return ((await response.json()) as Failure).error;
  } catch {
    return `${response.status} ${response.statusText}`;
  }
}
