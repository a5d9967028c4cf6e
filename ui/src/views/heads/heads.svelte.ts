/** Measures the heads of a run, once, one attention after another, while a component wants it. */

import { messageOf } from "../../core/errors";
import type { HeadFacts } from "../../core/protocol";
import type { Run } from "../../parts/kit";
import { headsOf, type Head } from "./heads";

export class HeadMeasures {
  /** KL(with || without) in nats, or how much a logit falls, by the address of z. Grows with every attention measured. */
  effects: ReadonlyMap<string, number> = $state.raw(new Map());
  facts: Readonly<Record<string, HeadFacts>> = $state.raw({});
  error = $state<string | null>(null);
  readonly heads: Head[];
  #wanted = 0;
  /** Of the questions under way; null while no component wants them. */
  #asking: AbortController | null = null;

  constructor(readonly run: Run, readonly logit: number | null) {
    this.heads = headsOf(run);
  }

  /** Measures what is missing, for as long as a component wants it. */
  follow(): () => void {
    this.#wanted += 1;
    if (!this.#asking) void this.#measure((this.#asking = new AbortController()).signal);
    return () => {
      this.#wanted -= 1;
      // A change of what is drawn leaves and comes back at once.
      queueMicrotask(() => {
        if (this.#wanted > 0) return;
        this.#asking?.abort();
        this.#asking = null;
      });
    };
  }

  async #measure(signal: AbortSignal): Promise<void> {
    try {
      if (Object.keys(this.facts).length === 0) this.facts = (await this.run.ask("statistics", { at: [] }, signal)).heads;
      for (const module of new Set(this.heads.map((head) => head.module))) {
        const at = this.heads.filter((head) => head.module === module && !this.effects.has(head.z)).map((head) => head.z);
        if (at.length === 0) continue;
        const { effects } = await this.run.ask("effects", { at, ...(this.logit !== null && { logit: this.logit }) }, signal);
        this.effects = new Map([...this.effects, ...Object.entries(effects)]);
      }
    } catch (error) {
      if (!signal.aborted) this.error = messageOf(error);
    }
  }
}

const known = new WeakMap<Run, Map<number | null, HeadMeasures>>();

/** The measures of a run; of one logit, if it is given. */
export function measuresOf(run: Run, logit: number | null = null): HeadMeasures {
  const all = known.get(run) ?? new Map<number | null, HeadMeasures>(), found = all.get(logit) ?? new HeadMeasures(run, logit);
  known.set(run, all.set(logit, found));
  return found;
}
