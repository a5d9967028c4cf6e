/** Answers from a worker that runs the page's own script, so that the page stays quick while a large model computes. */

import { messageOf } from "../../core/errors";
import type { Answered, Ask, Asked, Host, Reply, Tensor } from "../../core/host";
import { setLanguage } from "../../i18n/index.svelte";
import { Waiting } from "../waiting";
import type { Find } from "./parts";

type ToWorker = { open: true } | { part: string; bytes: Uint8Array<ArrayBuffer> } | { id: number; ask: Ask; asked: object } | { id: number; cancel: true };
type FromWorker = { ready: true } | { part: string } | { id: number; reply: Reply<unknown> } | { id: number; error: string };
const EXPORTS = /export\s*\{[^{}]*\};?\s*$/;

/** As much of a worker's global scope as is used here. */
interface Scope { onmessage: ((event: MessageEvent<ToWorker>) => void) | null; postMessage(message: FromWorker): void }

export class Background implements Host {
  #waiting = new Waiting<Reply<unknown>>(0, (id) => this.worker.postMessage({ id, cancel: true } satisfies ToWorker));

  private constructor(private readonly worker: Worker) {}

  /** Rejects where the browser or a policy allows no such worker. `more` runs after the page's script. The worker takes each part when it
   *  first needs it. */
  static start(script: string, more: string, take: (name: string) => Uint8Array<ArrayBuffer>): Promise<Background> {
    // Browsers load no module from a page on a disk: what it exports, at its end, is left out.
    const url = URL.createObjectURL(new Blob([script.replace(EXPORTS, ""), more], { type: "text/javascript" }));
    const worker = new Worker(url), made = new Background(worker);
    return new Promise<Background>((resolve, reject) => {
      worker.onerror = () => reject(new Error("no worker"));
      worker.onmessage = ({ data }: MessageEvent<FromWorker>) => {
        if ("part" in data) {
          const bytes = take(data.part);
          return worker.postMessage({ part: data.part, bytes } satisfies ToWorker, [bytes.buffer]);
        }
        if (!("ready" in data)) return made.#answered(data);
        resolve(made);
        worker.postMessage({ open: true } satisfies ToWorker);
      };
    }).finally(() => URL.revokeObjectURL(url));
  }

  async ask<A extends Ask>(ask: A, asked: Asked<A>, signal?: AbortSignal): Promise<Answered<A>> {
    // What Svelte watches cannot be sent.
    const plain = JSON.parse(JSON.stringify(asked)) as object;
    return (await this.#waiting.answer((id) => this.worker.postMessage({ id, ask, asked: plain } satisfies ToWorker), signal)) as Answered<A>;
  }

  #answered(message: Exclude<FromWorker, { ready: true } | { part: string }>): void {
    this.#waiting.settle(message.id, "error" in message ? new Error(message.error) : message.reply);
  }
}

/** The other side: answers what the page asks, with a host on the parts that it sends. */
export function answerInBackground(scope: Scope, open: (find: Find) => Host): void {
  let host: Host | null = null;
  const waiting = new Map<string, (bytes: Uint8Array<ArrayBuffer>) => void>();
  const find = (name: string): Promise<Uint8Array<ArrayBuffer>> => new Promise((resolve) => {
    waiting.set(name, resolve);
    scope.postMessage({ part: name });
  });
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
    if ("open" in data) host = open(find);
    else if ("bytes" in data) waiting.get(data.part)?.(data.bytes);
    else if ("cancel" in data) running.get(data.id)?.abort();
    else void answer(data.id, data.ask, data.asked);
  };
  scope.postMessage({ ready: true });
}

/** Sending a part of an array sends all of it. */
function alone({ shape, data }: Tensor): Tensor {
  return { shape, data: data.byteLength === data.buffer.byteLength ? data : data.slice() };
}
