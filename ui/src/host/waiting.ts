/** Questions whose answers come as messages, each with the number of its question. */
export class Waiting<T> {
  #waiting = new Map<number, { resolve(answer: T): void; reject(error: unknown): void }>();

  /** Numbers begin after `last`; `cancel` tells the other side that nobody waits any more. */
  constructor(private last: number, private readonly cancel: (id: number) => void) {}

  /** Sends a question under a number of its own, and waits. */
  async answer(send: (id: number) => void, signal?: AbortSignal): Promise<T> {
    signal?.throwIfAborted();
    const id = ++this.last;
    const abort = (): void => this.#giveUp(id, signal?.reason);
    signal?.addEventListener("abort", abort);
    try {
      return await new Promise<T>((resolve, reject) => {
        this.#waiting.set(id, { resolve, reject });
        send(id);
      });
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }

  /** Settles a question with its answer or an error. A number that nobody waits for is left alone. */
  settle(id: number, answer: T | Error): void {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (answer instanceof Error) waiting?.reject(answer);
    else waiting?.resolve(answer);
  }

  close(): void {
    for (const id of [...this.#waiting.keys()]) this.#giveUp(id, new Error("closed"));
  }

  #giveUp(id: number, reason: unknown): void {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    waiting?.reject(reason);
    this.cancel(id);
  }
}
