/** Answers from a worker that runs the page's own script, so that the page stays quick while a large model computes. */

import { messageOf } from "../../core/errors";
import type { Answered, Ask, Asked, Host, Reply, Tensor } from "../../core/host";
import { setLanguage } from "../../i18n/index.svelte";
import type { Find } from "./parts";

type ToWorker = { parts: Record<string, string> } | { id: number; ask: Ask; asked: object } | { id: number; cancel: true };
type FromWorker = { ready: true } | { id: number; reply: Reply<unknown> } | { id: number; error: string };
const EXPORTS = /export\s*\{[^{}]*\};?\s*$/;

interface Waiting { resolve(reply: Reply<unknown>): void; reject(error: unknown): void }

/** As much of a worker's global scope as is used here. */
interface Scope { onmessage: ((event: MessageEvent<ToWorker>) => void) | null; postMessage(message: FromWorker): void }

export class Background implements Host {
  #last = 0;
  #waiting = new Map<number, Waiting>();

  private constructor(private readonly worker: Worker) {}

  /** Rejects where the browser or a policy allows no such worker. `more` runs after the page's script. */
  static start(script: string, more: string, parts: Record<string, string>): Promise<Background> {
    // Browsers load no module from a page on a disk: what it exports, at its end, is left out.
    const url = URL.createObjectURL(new Blob([script.replace(EXPORTS, ""), more], { type: "text/javascript" }));
    const worker = new Worker(url), made = new Background(worker);
    return new Promise<Background>((resolve, reject) => {
      worker.onerror = () => reject(new Error("no worker"));
      worker.onmessage = ({ data }: MessageEvent<FromWorker>) => {
        if (!("ready" in data)) return made.#answered(data);
        resolve(made);
        worker.postMessage({ parts } satisfies ToWorker);
      };
    }).finally(() => URL.revokeObjectURL(url));
  }

  async ask<A extends Ask>(ask: A, asked: Asked<A>, signal?: AbortSignal): Promise<Answered<A>> {
    signal?.throwIfAborted();
    const id = ++this.#last;
    const abort = (): void => {
      this.worker.postMessage({ id, cancel: true } satisfies ToWorker);
      this.#waiting.get(id)?.reject(signal?.reason);
      this.#waiting.delete(id);
    };
    signal?.addEventListener("abort", abort);
    try {
      const reply = await new Promise<Reply<unknown>>((resolve, reject) => {
        this.#waiting.set(id, { resolve, reject });
        // What Svelte watches cannot be sent.
        this.worker.postMessage({ id, ask, asked: JSON.parse(JSON.stringify(asked)) as object } satisfies ToWorker);
      });
      return reply as Answered<A>;
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }

  #answered(message: Exclude<FromWorker, { ready: true }>): void {
    const waiting = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if ("error" in message) waiting?.reject(new Error(message.error));
    else waiting?.resolve(message.reply);
  }
}

/** The other side: answers what the page asks, with a host on the parts that it sends. */
export function answerInBackground(scope: Scope, open: (find: Find) => Host): void {
  let host: Host | null = null;
  const running = new Map<number, AbortController>();
  const answer = async (id: number, ask: Ask, asked: object): Promise<void> => {
    const stop = new AbortController();
    running.set(id, stop);
    try {
      if (ask === "texts") await setLanguage((asked as Asked<"texts">).language, host!);
      const { json, tensors } = await host!.ask(ask, asked as never, stop.signal);
      scope.postMessage({ id, reply: { json, tensors: new Map([...tensors].map(([name, tensor]) => [name, alone(tensor)])) } });
    } catch (error) {
      scope.postMessage({ id, error: messageOf(error) });
    } finally {
      running.delete(id);
    }
  };
  scope.onmessage = ({ data }) => {
    if ("parts" in data) host = open((name) => data.parts[name] ?? null);
    else if ("cancel" in data) running.get(data.id)?.abort();
    else void answer(data.id, data.ask, data.asked);
  };
  scope.postMessage({ ready: true });
}

/** Sending a part of an array sends all of it. */
function alone({ shape, data }: Tensor): Tensor {
  return { shape, data: data.byteLength === data.buffer.byteLength ? data : data.slice() };
}
