/** The page's side of a training: what it knows of the worker's network, and what it asks of it. */

import type { Off } from "../engine/training/batch";
import { save } from "../parts/save";
import type { FromWorker, Progress, Taught, ToWorker } from "./worker";

export class Learner {
  now = $state.raw<Progress | null>(null);
  losses = $state.raw<Progress["losses"]>([]);
  tests = $state.raw<Progress["tests"]>([]);
  playing = $state(false);
  error = $state("");
  /** Heads that are switched off, as ADDRESS[h=N], and the positions. */
  off = $state.raw<ReadonlySet<string>>(new Set());
  #seed = 0;
  readonly #worker: Worker;

  constructor(readonly lesson: Taught, script: string) {
    const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
    this.#worker = new Worker(url);
    this.#worker.onerror = (event) => (this.error = event.message || "no worker");
    this.#worker.onmessage = ({ data }: MessageEvent<FromWorker>) => {
      if ("ready" in data) this.renew();
      else if ("error" in data) [this.error, this.playing] = [data.error, false];
      else if ("file" in data) save(new Blob([data.file], { type: "application/zip" }), `${lesson.name}.zip`);
      else [this.now, this.losses, this.tests] = [data, [...this.losses, ...data.losses], [...this.tests, ...data.tests]];
    };
  }

  /** Begins with new weights. */
  renew(): void {
    [this.losses, this.tests, this.playing, this.error] = [[], [], false, ""];
    this.ask({ open: $state.snapshot(this.lesson) as Taught, seed: ++this.#seed });
  }

  play(): void {
    this.ask({ play: (this.playing = !this.playing) });
  }

  /** Switches a head, or the positions, off or on. */
  toggle(name: string): void {
    const off = new Set(this.off);
    if (!off.delete(name)) off.add(name);
    this.off = off;
    this.ask({ off: this.#edits() });
  }

  #edits(): Off {
    return [...this.off].flatMap((name) => {
      const [path, head] = name.split("[h=");
      return head ? [{ path: path!, head: parseInt(head) }] : this.lesson.plan.ops.filter(({ out }) => out.endsWith(".embed.positions")).map(({ out }) => ({ path: out }));
    });
  }

  ask(message: ToWorker): void {
    this.#worker.postMessage(message);
  }
}
