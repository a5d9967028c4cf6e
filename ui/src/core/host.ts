/** Who answers a page's questions: the same in every host. The questions and replies are in protocol.ts. */

import type { Questions } from "./protocol";

export type Ask = keyof Questions;
export type Asked<A extends Ask> = Parameters<Questions[A]>[0];
export type Answered<A extends Ask> = Reply<ReturnType<Questions[A]>>;

/** The smallest difference of two runs, in logits, of which parts are shares: as clearhead/analysis/metrics.py has it. */
export const LEAST = 0.1;

/** The reply to a question that failed. */
export interface Failure { error: string }

export type Numbers = Float32Array | Uint8Array | Int32Array;
export interface Tensor {
  shape: number[];
  data: Numbers;
  /** One row, where all numbers at once are many. */
  row?(i: number): Numbers;
}

export interface Reply<T> { json: T; tensors: Map<string, Tensor> }

/** The script of a place of another package: it draws a reply, and may ask again with other fields. */
export interface PlaceScript {
  draw(element: HTMLElement, reply: Reply<unknown>, ask: (fields: object) => Promise<Reply<unknown>>): void;
}

/** Answers questions. Rejects with an Error whose message is one line for the reader. */
export interface Host {
  /** Called when the host no longer answers this page. */
  onlost?: (() => void) | null;
  ask<A extends Ask>(ask: A, asked: Asked<A>, signal?: AbortSignal): Promise<Answered<A>>;
  /** The script of a place; missing where pages cannot load one. */
  script?(place: string): Promise<PlaceScript>;
}
