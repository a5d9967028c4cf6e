/** Measures the heads of a run, once, one attention after another, while the page is in use. */

import { messageOf } from "../../core/errors";
import type { HeadFacts } from "../../core/protocol";
import type { Pixels, Run } from "../../state/run";
import { headsOf, pooledPixels, type Head } from "./heads";

export class HeadMeasures {
  /** KL(with || without) in nats, or how much a logit falls, by the address of z. Grows with every attention measured. */
  effects: ReadonlyMap<string, number> = $state.raw(new Map());
  facts: Readonly<Record<string, HeadFacts>> = $state.raw({});
  error = $state<string | null>(null);
  readonly heads: Head[];
  #thumbs = new Map<string, Pixels | null>();
  #measuring = false;
  #asked = false;
  #wanted = 0;

  constructor(readonly run: Run, readonly logit: number | null) {
    this.heads = headsOf(run);
  }

  /** Measures what is missing, for as long as a component wants it. */
  follow(): () => void {
    this.#wanted += 1;
    void this.#describe();
    void this.#measure();
    return () => void (this.#wanted -= 1);
  }

  /** One head's attention, small. */
  thumb({ weights, module, head }: Head): Pixels | null {
    let found = this.#thumbs.get(weights);
    if (found === undefined) {
      const pixels = this.run.heads(`${module}.weights`)[head];
      this.#thumbs.set(weights, (found = pixels ? pooledPixels(pixels) : null));
    }
    return found;
  }

  async #describe(): Promise<void> {
    if (this.#asked) return;
    this.#asked = true;
    try {
      const { json } = await this.run.host.ask("statistics", { run: this.run.request, at: [] });
      this.facts = json.heads;
    } catch (error) {
      this.#failed(error);
    }
  }

  async #measure(): Promise<void> {
    if (this.#measuring) return;
    this.#measuring = true;
    try {
      for (const module of new Set(this.heads.map((head) => head.module))) {
        const own = this.heads.filter((head) => head.module === module).map((head) => head.z);
        const at = own.filter((z) => !this.effects.has(z));
        if (at.length === 0) continue;
        if (this.#wanted === 0) return;
        const { json } = await this.run.host.ask("effects", { run: this.run.request, at, ...(this.logit !== null && { logit: this.logit }) });
        this.effects = new Map([...this.effects, ...Object.entries(json.effects)]);
      }
    } catch (error) {
      this.#failed(error);
    } finally {
      this.#measuring = false;
    }
  }

  #failed(error: unknown): void {
    this.error = messageOf(error);
  }
}

const known = new WeakMap<Run, Map<number | null, HeadMeasures>>();

/** The measures of a run; of one logit, if it is given. */
export function measuresOf(run: Run, logit: number | null = null): HeadMeasures {
  const all = known.get(run) ?? new Map<number | null, HeadMeasures>(), found = all.get(logit) ?? new HeadMeasures(run, logit);
  known.set(run, all.set(logit, found));
  return found;
}
