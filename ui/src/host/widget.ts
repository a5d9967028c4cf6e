/** Sends questions as messages of a notebook's widget (anywidget). Synced traits would be saved in the notebook. */

import type { Answered, Ask, Asked, Host } from "../core/host";
import { readReply } from "./reply";
import { Waiting } from "./waiting";

type Listener = (content: AnswerMessage, buffers: DataView[]) => void;

/** The part of anywidget's model that is used here. */
export interface WidgetModel {
  send(content: Message): void;
  on(event: "msg:custom", listener: Listener): void;
  off(event: "msg:custom", listener: Listener): void;
}

type Message = { id: number; question: object } | { id: number; cancel: true };
interface AnswerMessage { id: number; error?: string }

export class WidgetHost implements Host {
  /** A widget may be shown several times, and every page receives all answers: each counts from a random number. */
  #waiting = new Waiting<ArrayBuffer>(Math.floor(Math.random() * 2 ** 52), (id) => this.model.send({ id, cancel: true }));

  constructor(private readonly model: WidgetModel) {
    model.on("msg:custom", this.#answered);
  }

  async ask<A extends Ask>(ask: A, asked: Asked<A>, signal?: AbortSignal): Promise<Answered<A>> {
    return readReply(await this.#waiting.answer((id) => this.model.send({ id, question: { ask, ...asked } }), signal));
  }

  close(): void {
    this.#waiting.close();
    this.model.off("msg:custom", this.#answered);
  }

  #answered = ({ id, error }: AnswerMessage, [bytes]: DataView[]): void => {
    if (error !== undefined || !bytes) return this.#waiting.settle(id, new Error(error ?? "no answer"));
    // A notebook passes views into a larger message: a copy is aligned.
    this.#waiting.settle(id, bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer);
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
