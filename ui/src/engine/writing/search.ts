/** Which hypotheses go on: one by itself (greedy, sampling), or the best few of all (beam search), as
 *  clearhead/generation/search.py decides. */

import { topIndices } from "../../core/top";
import { uniform } from "./chance";
import { chosen, controlled, forced, logSoftmax, type Settings } from "./sampling";

/** A text that is being written: what the next token follows, and the slot that it stands in. */
export interface Slot { written: readonly number[]; total: number }

/** One more token in every slot: `parents` says which slot of the last step each one continues. */
export interface Step { tokens: number[]; parents: number[]; logProbs: number[] }

export interface Found { written: readonly number[]; total: number; score: number; ended: boolean }

export class Search {
  slots: Slot[] = [{ written: [], total: 0 }];
  readonly finished: Found[] = [];
  done = false;

  constructor(private readonly prompt: readonly number[], private readonly settings: Settings, private readonly limit: number) {}

  /** The next step, from the logits of each slot. */
  advance(logits: readonly Float32Array[]): Step {
    return this.settings.beams > 1 ? this.#beams(logits) : this.#alone(logits[0]!);
  }

  /** Best first. */
  best(): Found[] {
    return [...this.finished].sort((a, b) => b.score - a.score);
  }

  #alone(logits: Float32Array): Step {
    const { settings, prompt, limit } = this, [slot] = this.slots as [Slot], n = prompt.length + slot.written.length;
    const scores = controlled(new Float64Array(logits), [...prompt, ...slot.written], prompt.length, limit, settings);
    const token = chosen(scores, settings, () => uniform(settings.seed, "sample", 0, 0, slot.written.length));
    const log = forced(logSoftmax(logits), n, prompt.length, limit, settings)[token]!;
    const grown = { written: [...slot.written, token], total: slot.total + log };
    this.slots = [grown];
    if (this.#ends(grown)) {
      this.finished.push(this.#found(grown));
      this.done = true;
    }
    return { tokens: [token], parents: [0], logProbs: [log] };
  }

  #beams(logits: readonly Float32Array[]): Step {
    const { settings, prompt } = this, k = settings.beams, c = Math.max(2, 1 + settings.end_ids.length) * k;
    const logs = logits.map((one, i) => controlled(logSoftmax(one), [...prompt, ...this.slots[i]!.written], prompt.length, this.limit, settings));
    const each = logs.flatMap((row, parent) => topIndices(row, c).map((token) => ({ parent, token, log: row[token]!, total: this.slots[parent]!.total + row[token]! })));
    const best = each.map((one, i) => ({ ...one, i })).sort((a, b) => b.total - a.total || a.i - b.i).slice(0, c);
    const open: typeof best = [], ended: typeof best = [];
    best.forEach((one, i) => {
      const grown = { written: [...this.slots[one.parent]!.written, one.token], total: one.total };
      if (one.total === -Infinity || !this.#ends(grown)) return void open.push(one);
      ended.push({ ...one, total: -Infinity });
      if (i < k) this.#keep(this.#found(grown));
    });
    // Where too few go on, ended ones fill the slots, and never win.
    const going = [...open, ...ended].slice(0, k), before = this.slots;
    this.slots = going.map(({ parent, token, total }) => ({ written: [...before[parent]!.written, token], total }));
    this.done = !this.#goesOn(going[0]?.total ?? -Infinity);
    return { tokens: going.map((one) => one.token), parents: going.map((one) => one.parent), logProbs: going.map((one) => one.log) };
  }

  #ends({ written }: Slot): boolean {
    return this.settings.end_ids.includes(written.at(-1)!) || written.length >= this.limit;
  }

  #found({ written, total }: Slot): Found {
    const ended = this.settings.end_ids.includes(written.at(-1)!);
    return { written, total, score: total / written.length ** this.settings.length_penalty, ended };
  }

  #keep(found: Found): void {
    this.finished.push(found);
    this.finished.sort((a, b) => b.score - a.score);
    this.finished.length = Math.min(this.finished.length, this.settings.beams);
  }

  /** Whether a running hypothesis may still beat the finished ones. */
  #goesOn(bestRunning: number): boolean {
    const { beams, early_stopping: early, length_penalty: penalty } = this.settings;
    const length = this.slots[0]?.written.length ?? this.limit;
    if (bestRunning === -Infinity || length >= this.limit) return false;
    if (this.finished.length < beams) return true;
    if (early === true) return false;
    return bestRunning / (early === "never" && penalty > 0 ? this.limit : length) ** penalty > this.finished.at(-1)!.score;
  }
}
