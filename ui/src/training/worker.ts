/** Training in a worker, which runs the page's own script, so that the page stays quick. */

import type { StackName } from "../core/protocol";
import type { Floats } from "../core/tensor";
import type { Off } from "../engine/training/batch";
import { checkpoint } from "../engine/training/checkpoint";
import { Trainer, type Lesson } from "../engine/training/trainer";

/** The part `training` of a page. */
export interface Taught extends Lesson {
  name: string;
  /** Of each token. */
  words: string[];
  /** The files of a checkpoint beside its weights. */
  files: Record<string, string>;
}

export type ToWorker = { open: Taught; seed: number } | { play: boolean } | { step: true } | { off: Off } | { example: number } | { forget: string; head: number; heads: number } | { save: true };

/** Where the training is. Lists hold what is new since the last message. */
export interface Progress {
  steps: number;
  /** Of work. */
  seconds: number;
  /** Step and mean loss of the steps since the one before. */
  losses: [step: number, loss: number][];
  /** Step and share of unseen examples that are right. */
  tests: [step: number, exact: number][];
  /** The attention weights of the example: `h t s`, by address. */
  maps: Record<string, Floats>;
  written: number[];
  example: number;
}
export type FromWorker = { ready: true } | Progress | { file: Uint8Array<ArrayBuffer> } | { error: string };

export interface Scope { onmessage: ((event: MessageEvent<ToWorker>) => void) | null; postMessage(message: FromWorker): void }

/** Milliseconds of work before a message, steps that one point of the loss sums up, and steps between two tests. */
const AT_A_TIME = 150, EACH = 5, TEST = 20;

export function trainInBackground(scope: Scope): void {
  let made: { lesson: Taught; trainer: Trainer } | null = null, playing = false, off: Off = [], example = 0, seconds = 0;
  let recent: number[] = [], losses: Progress["losses"] = [], tests: Progress["tests"] = [];

  const step = ({ lesson, trainer }: NonNullable<typeof made>): void => {
    const loss = trainer.step(off);
    if (!Number.isFinite(loss)) throw new Error("not finite");
    recent.push(loss);
    if (trainer.steps % EACH === 0 || trainer.steps === 1) {
      losses.push([trainer.steps, recent.reduce((sum, one) => sum + one / recent.length, 0)]);
      recent = [];
    }
    if (trainer.steps % TEST === 0) test({ lesson, trainer });
  };

  const test = ({ lesson, trainer }: NonNullable<typeof made>): void => void tests.push([trainer.steps, trainer.test(lesson.unseen, off)]);

  const tell = ({ lesson, trainer }: NonNullable<typeof made>): void => {
    const shown = lesson.unseen[example]!, pass = trainer.pass([shown], off);
    const maps = Object.fromEntries([...pass.values].filter(([path]) => path.endsWith(".weights")));
    scope.postMessage({ steps: trainer.steps, seconds, losses, tests, maps, written: trainer.write(shown, off), example });
    [losses, tests] = [[], []];
  };

  const work = (once = false): void => {
    if (!made || !(playing || once)) return;
    const began = performance.now();
    try {
      do step(made);
      while (!once && performance.now() - began < AT_A_TIME);
      seconds += (performance.now() - began) / 1000;
      if (once) test(made);
      tell(made);
      if (!once) setTimeout(work);
    } catch (error) {
      playing = false;
      scope.postMessage({ error: error instanceof Error ? error.message : String(error) });
    }
  };

  scope.onmessage = ({ data }) => {
    if ("open" in data) {
      made = { lesson: data.open, trainer: new Trainer(data.open, data.seed) };
      [playing, seconds, recent, losses] = [false, 0, [], []];
      tests = [];
      test(made);
      tell(made);
    } else if (!made) return;
    else if ("play" in data) {
      const begins = data.play && !playing;
      playing = data.play;
      if (begins) return work();
      test(made);
      tell(made);
    } else if ("step" in data) work(true);
    else if ("save" in data) {
      const { lesson: { name, parameters, files }, trainer: { steps, weights } } = made;
      const own = new Map([...weights].filter(([path]) => !("same" in parameters[path]!)));
      scope.postMessage({ file: checkpoint(name, steps, ...without(off, own, files)) });
    } else {
      if ("off" in data) off = data.off;
      else if ("forget" in data) made.trainer.forget(data.forget, data.head, data.heads);
      else example = data.example;
      if (playing) return;
      if (!("example" in data)) test(made);
      tell(made);
    }
  };
  scope.postMessage({ ready: true });
}

/** The weights and files of a network that has no need of what is switched off: a head writes nothing by its part of the output
 *  matrix, and the config says that there are no positions. */
function without(off: Off, weights: ReadonlyMap<string, Floats>, files: Taught["files"]): [Map<string, Floats>, Taught["files"]] {
  const made = new Map(weights), config = JSON.parse(files["config.json"]!) as { model: Record<StackName, { n_heads: number; positions: object }> };
  for (const { path, head } of off) {
    const stack = config.model[path.split(".")[0] as StackName], name = path.replace(/\.z$/, ".out.weight"), matrix = made.get(name);
    if (head === undefined) stack.positions = { kind: "none" };
    else if (matrix) {
      const n = matrix.shape[1]!, width = n / stack.n_heads;
      made.set(name, { ...matrix, data: matrix.data.map((x, i) => (Math.floor((i % n) / width) === head ? 0 : x)) });
    }
  }
  return [made, { ...files, "config.json": JSON.stringify(config) }];
}
