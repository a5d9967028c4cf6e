/** What a host finds of a circuit, one answer after another: nodes, edges, then the faithfulness curve point by point. */

import { messageOf } from "../../core/errors";
import type { Host } from "../../core/host";
import type { CircuitsQuestion, CircuitsReply, Edge, FaithfulnessReply } from "../../core/protocol";

/** Edges that a page lists at most. */
const MOST = 1000;
const SHARES = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5];
/** The share that is shown first. */
export const FIRST = 2;

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
    return SHARES.map((share, i) => this.points[i]?.n_edges ?? Math.round(share * this.total));
  }

  /** What is done of what is asked, from 0 to 1. */
  get done(): number {
    return ((this.graph ? 1 : 0) + (this.total ? 1 : 0) + this.points.length) / (2 + SHARES.length);
  }

  async #all(host: Host): Promise<void> {
    const { signal } = this.#stopped, asked = { ...this.asked, steps: this.steps };
    try {
      this.graph = (await host.ask("circuits", this.asked, signal)).json;
      const { json } = await host.ask("edges", { ...asked, most: MOST }, signal);
      [this.edges, this.total] = [json.edges, json.total];
      for (const share of SHARES) {
        const point = (await host.ask("faithfulness", { ...asked, share }, signal)).json;
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
