/** Questions over HTTP, to the server that served the page. */

import type { Failure, Host, Reply } from "../core/protocol";
import { t } from "../i18n/index.svelte";
import { readReply } from "./reply";

export class HttpHost implements Host {
  async ask<T>(question: { ask: string } & Record<string, unknown>, signal?: AbortSignal): Promise<Reply<T>> {
    const response = await fetch("/ask", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(question),
      signal: signal ?? null,
    }).catch((error: unknown) => {
      signal?.throwIfAborted();
      // The browser's own words for it say nothing to a reader.
      throw new Error(t("error.no_answer"), { cause: error });
    });
    if (!response.ok) throw new Error(await failure(response));
    return readReply<T>(await response.arrayBuffer());
  }
}

async function failure(response: Response): Promise<string> {
  try {
    return ((await response.json()) as Failure).error;
  } catch {
    return `${response.status} ${response.statusText}`;
  }
}
