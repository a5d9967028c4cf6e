/** The page's input through every checkpoint of the training run: one forward pass each, one after another. */

import type { Checkpoint } from "../core/protocol";
import { oneOfEach } from "./each";
import type { Explorer } from "./explorer.svelte";
import { Run } from "./run";

export class Moments {
  /** Runs by step. A checkpoint that cannot be read has none. */
  runs: ReadonlyMap<number, Run> = $state.raw(new Map());
  /** Whether passes are still missing. */
  filling = $state(false);
  #input = "";

  constructor(readonly app: Explorer) {}

  get all(): Checkpoint[] {
    return this.app.about.history;
  }

  /** The checkpoint of run A. */
  get step(): number {
    return this.app.page.reads.step ?? this.app.about.step ?? this.all.at(-1)?.step ?? 0;
  }

  /** The checkpoint of run B, if B is another one. */
  get other(): number | null {
    const step = this.app.page.other?.step ?? -1;
    return step < 0 ? null : step;
  }

  /** Opens a checkpoint as A. The text and what the decoder reads stay, so that only the weights differ. */
  open(step: number): void {
    const own = step === this.app.about.step ? null : step;
    void this.app.act({ reads: { ...this.app.page.reads, step: own, target: this.#target } });
  }

  /** Opens a checkpoint as B; null closes B. */
  compare(step: number | null): void {
    const other = step === null ? null : { ...this.app.page.reads, step, target: this.#target };
    void this.app.act({ other, side: step === null ? "a" : "b" });
  }

  /** Call it in a component: fills `runs` again whenever the input changes. */
  follow(): void {
    $effect(() => {
      const run = this.app.a;
      if (run) void this.#fill(run);
    });
  }

  get #target(): string | null {
    return this.app.a?.reply.target ?? null;
  }

  async #fill({ request, reply, plan }: Run): Promise<void> {
    const asked = { text: request.text, target: reply.target, image: request.image ?? null, edits: [] };
    const input = JSON.stringify(asked);
    if (input === this.#input) return;
    this.#input = input;
    this.runs = new Map();
    this.filling = true;
    for (const { step } of this.all) {
      const run = await Run.of(this.app.host, { ...asked, step }, plan, undefined, true).catch(() => null);
      if (this.#input !== input) return;
      if (run) this.runs = new Map(this.runs).set(step, run);
    }
    this.filling = false;
  }
}

/** The moments of an explorer: the strip below the page and the training view share their passes. */
export const moments = oneOfEach(Moments);
