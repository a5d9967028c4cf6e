/** One forward pass as the page holds it: the host's reply, and the values, which are fetched when first needed. */

import { formatAddress, parseAddress, type Address } from "../core/address";
import type { Answered, Ask, Asked, Host, Tensor } from "../core/host";
import type { Check, Op, Plan, RunReply, RunRequest, Token } from "../core/protocol";
import { derive, type Source } from "../engine/derive";
import { NO_PIXELS, numbersOf } from "../engine/forward";

/** The weights of one head: 8-bit shares of the largest of their row. */
export interface Pixels { pixels: Uint8Array; max: Float32Array; rows: number; cols: number }

export class Run implements Source {
  #values = new Map<string, Promise<Tensor>>();
  #waiting: { at: string; resolve(value: Tensor): void; reject(error: unknown): void }[] = [];
  #ops: Map<string, Op>;
  #check: Promise<Check> | null = null;
  #heads = new Map<string, Pixels[]>();
  readonly numbers: ReadonlyMap<string, Tensor>;

  constructor(
    readonly host: Host,
    readonly request: RunRequest,
    readonly reply: RunReply,
    readonly tensors: Map<string, Tensor>,
    readonly plan: Plan,
  ) {
    this.#ops = new Map(plan.ops.map((op) => [op.out, op]));
    this.numbers = numbersOf(plan.config, reply.tokens, NO_PIXELS);
  }

  static async of(host: Host, request: RunRequest, plan: Plan, signal?: AbortSignal, later = false): Promise<Run> {
    const { json, tensors } = await host.ask("run", { run: request, ...(later && { later }) }, signal);
    return new Run(host, request, json, tensors, json.plan ?? plan);
  }

  /** What the last stack reads: each position of this sequence has an answer. */
  get tokens(): Token[] {
    return this.reply.tokens.decoder ?? this.reply.tokens.encoder ?? [];
  }

  /** The tokens that the model wrote, without the start token; null if it wrote nothing. */
  get writtenTokens(): number[] | null {
    return this.reply.target === null ? null : (this.reply.tokens.decoder ?? []).slice(1).map((token) => token.id);
  }

  op(path: string): Op | undefined {
    return this.#ops.get(path);
  }

  /** Whether an address has a value: a stored one, or one that an op derives. */
  has(path: string): boolean {
    return path in this.reply.facts || this.#ops.has(path);
  }

  /** A value at an address with or without indices, in float32. It is fetched once; several at a time share a
   *  question. */
  value(at: string): Promise<Tensor> {
    let found = this.#values.get(at);
    if (!found) {
      const address = parseAddress(at);
      found = address.path in this.reply.facts ? this.#fetch(at) : this.#derive(address);
      this.#values.set(at, found);
      found.catch(() => this.#values.delete(at));
    }
    return found;
  }

  /** Each head of an attention by its weights' address, as it came with the run; none if it did not. */
  heads(weights: string): Pixels[] {
    const found = this.#heads.get(weights) ?? this.#read(weights);
    this.#heads.set(weights, found);
    return found;
  }

  #read(weights: string): Pixels[] {
    const { data: pixels, shape: [n = 0, rows = 0, cols = 0] = [] } = this.tensors.get(`${weights}.u8`) ?? {}, max = this.tensors.get(`${weights}.max`)?.data;
    if (!(pixels instanceof Uint8Array) || !(max instanceof Float32Array)) return [];
    return Array.from({ length: n }, (_, i) => ({ pixels: pixels.subarray(i * rows * cols, (i + 1) * rows * cols), max: max.subarray(i * rows, (i + 1) * rows), rows, cols }));
  }

  /** What the host says of this pass. */
  async ask<A extends Ask>(ask: A, fields: Omit<Asked<A>, "run">, signal?: AbortSignal): Promise<Answered<A>["json"]> {
    return (await this.host.ask(ask, { run: this.request, ...fields } as Asked<A>, signal)).json;
  }

  async weights(at: string[]): Promise<Map<string, Tensor>> {
    const step = this.request.step ?? null;
    return (await this.host.ask("weights", { step, at })).tensors;
  }

  check(): Promise<Check> {
    this.#check ??= this.ask("check", {}).then(({ check }) => check);
    return this.#check;
  }

  #fetch(at: string): Promise<Tensor> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ at, resolve, reject });
      if (this.#waiting.length === 1) queueMicrotask(() => void this.#send());
    });
  }

  async #send(): Promise<void> {
    const asked = this.#waiting;
    this.#waiting = [];
    try {
      const at = asked.map((one) => one.at);
      const { tensors } = await this.host.ask("values", { run: this.request, at, dtype: "float32" });
      for (const one of asked) {
        const tensor = tensors.get(one.at);
        if (tensor) one.resolve(tensor);
        else one.reject(new Error(`${one.at}: no value`));
      }
    } catch (error) {
      for (const one of asked) one.reject(error);
    }
  }

  #derive(address: Address): Promise<Tensor> {
    const op = this.#ops.get(address.path);
    if (!op) return Promise.reject(new Error(`${formatAddress(address)}: no such value`));
    return derive(op, address, this);
  }
}
