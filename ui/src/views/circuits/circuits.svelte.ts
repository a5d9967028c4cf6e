/** What a host finds of a circuit, one answer after another: nodes, edges, then the faithfulness curve point by point. */

import { messageOf } from "../../core/errors";
import type { Host } from "../../core/host";
import type { CircuitsQuestion, CircuitsReply, Edge, FaithfulnessReply } from "../../core/protocol";

/** Edges that a page lists at most. */
const MOST = 1000;
/** Sizes of circuits that are measured, up to half of the edges. */
const SIZES = [10, 25, 60, 150, 400, 1000];

export class Search {
  readonly asked: CircuitsQuestion;
  readonly steps: number;
  graph = $state.raw<CircuitsReply | null>(null);
  edges = $state.raw<Edge[]>([]);
  total = $state(0);
  points = $state.raw<FaithfulnessReply[]>([]);
  error = $state<string | null>(null);
  busy = $state(true);
  #stopped = new AbortController();

  constructor(host: Host, asked: CircuitsQuestion, steps: number) {
    this.asked = asked;
    this.steps = steps;
    void this.#all(host);
  }

  /** Answers that are still on their way are dropped. */
  stop(): void {
    this.#stopped.abort();
  }

  /** The sizes of circuits that are measured. */
  get sizes(): number[] {
    const half = Math.ceil(this.total / 2);
    return [...SIZES.filter((n) => n < half), Math.min(half, 2500)];
  }

  /** What is done of what is asked, from 0 to 1. */
  get done(): number {
    return ((this.graph ? 1 : 0) + (this.total ? 1 : 0) + this.points.length) / (2 + this.sizes.length);
  }

  async #all(host: Host): Promise<void> {
    const { signal } = this.#stopped, asked = { ...this.asked, steps: this.steps };
    try {
      this.graph = (await host.ask("circuits", this.asked, signal)).json;
      const { json } = await host.ask("edges", { ...asked, most: MOST }, signal);
      [this.edges, this.total] = [json.edges, json.total];
      for (const n of this.sizes) {
        const point = (await host.ask("faithfulness", { ...asked, share: n / this.total }, signal)).json;
        if (signal.aborted) return;
        this.points = [...this.points, point];
      }
    } catch (error) {
      if (!signal.aborted) this.error = messageOf(error);
    } finally {
      this.busy = false;
    }
  }
}
