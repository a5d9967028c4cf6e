/** Sends questions as messages of a notebook's widget (anywidget). Synced traits would be saved in the notebook. */

import type { Answered, Ask, Asked, Host } from "../core/host";
import { readReply } from "./reply";

type Listener = (content: AnswerMessage, buffers: DataView[]) => void;

/** The part of anywidget's model that is used here. */
export interface WidgetModel {
  send(content: Message): void;
  on(event: "msg:custom", listener: Listener): void;
  off(event: "msg:custom", listener: Listener): void;
}

type Message = { id: number; question: object } | { id: number; cancel: true };
interface AnswerMessage { id: number; error?: string }
interface Waiting { resolve(bytes: ArrayBuffer): void; reject(error: unknown): void }

export class WidgetHost implements Host {
  /** A widget may be shown several times, and every page receives all answers: each counts from a random number. */
  #last = Math.floor(Math.random() * 2 ** 52);
  #waiting = new Map<number, Waiting>();

  constructor(private readonly model: WidgetModel) {
    model.on("msg:custom", this.#answered);
  }

  async ask<A extends Ask>(ask: A, asked: Asked<A>, signal?: AbortSignal): Promise<Answered<A>> {
    signal?.throwIfAborted();
    const id = ++this.#last;
    const abort = (): void => this.#cancel(id, signal?.reason);
    signal?.addEventListener("abort", abort);
    try {
      const bytes = await new Promise<ArrayBuffer>((resolve, reject) => {
        this.#waiting.set(id, { resolve, reject });
        this.model.send({ id, question: { ask, ...asked } });
      });
      return readReply(bytes);
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }

  close(): void {
    for (const id of [...this.#waiting.keys()]) this.#cancel(id, new Error("closed"));
    this.model.off("msg:custom", this.#answered);
  }

  #cancel(id: number, reason: unknown): void {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    waiting?.reject(reason);
    this.model.send({ id, cancel: true });
  }

  #answered = (content: AnswerMessage, buffers: DataView[]): void => {
    const waiting = this.#waiting.get(content.id);
    this.#waiting.delete(content.id);
    if (!waiting) return;
    const bytes = buffers[0];
    if (content.error !== undefined || !bytes) waiting.reject(new Error(content.error ?? "no answer"));
    // A notebook passes views into a larger message: a copy is aligned.
    else waiting.resolve(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer);
  };
}

/** Keeps letters from JupyterLab, which takes one pressed outside a field for a command (dd deletes the cell) unless the
 *  focused element has an attribute. Keys with Ctrl, Alt or Meta still reach it: Ctrl+S saves the notebook.
 *  Returns a function that undoes this. */
export function keepKeys(el: HTMLElement): () => void {
  const mark = (event: KeyboardEvent): void => {
    if (!(event.target instanceof Element) || !el.contains(event.target)) return;
    event.target.toggleAttribute("data-lm-suppress-shortcuts", !(event.ctrlKey || event.altKey || event.metaKey));
  };
  addEventListener("keydown", mark, { capture: true }); // Of the window: before JupyterLab's own, of the document.
  return () => removeEventListener("keydown", mark, { capture: true });
}
