/** The two texts of an experiment, and their answers. Where the reader types no second text, the host proposes one. */

import type { ProposalReply, RunRequest } from "../../core/protocol";
import { partners } from "../../host/baked/patching";
import { answerOf, firstAsked, load, wordOf, type Choice, type Explorer, type Run } from "../../parts/kit";
import { answers } from "../answers.svelte";

export class Pair {
  /** What the reader chose to compare. */
  chosen = $state<{ answer: number | null; minus: number | null }>({ answer: null, minus: null });
  #proposed;
  #run;

  /** `always`: the host is asked even if there is a second text. A vector is compared with the last example's. */
  constructor(readonly app: Explorer, always = false) {
    this.#proposed = load((signal) => {
      const { page, about, a } = app, position = answers(app) === "one" ? null : page.position, own = page.reads.text;
      if (always && answers(app) === "none") return Promise.resolve({ position: 0, same: [own], other: about.examples.map(({ text }) => text).filter((text) => text !== own).slice(-1) });
      if (!a || !about.answers.includes("propose") || (this.given && !always)) return null;
      return app.host.ask("propose", { run: $state.snapshot(this.clean) as RunRequest, ...(position !== null && { position }) }, signal).then(({ json }) => json);
    });
    this.#run = load(() => (this.corrupt && app.a ? app.runOf($state.snapshot(this.corrupt) as RunRequest) : null));
  }

  get given(): string | null { return this.app.page.other?.text ?? this.app.about.corrupt ?? null; }
  get proposed(): ProposalReply | null { return this.#proposed.value; }
  get text(): string { return this.given ?? this.proposed?.other[0] ?? ""; }

  /** Both runs are without edits; an encoder-decoder reads in both what A wrote, so that both answer the same question. */
  get #target(): Pick<RunRequest, "target"> & Partial<RunRequest> {
    const { a, page } = this.app, written = a?.request.target === null ? a.writtenTokens : null;
    return written ? { target: a!.reply.target, written } : { target: page.reads.target };
  }
  get clean(): RunRequest { return { ...this.app.page.reads, ...this.#target, edits: [] }; }
  get corrupt(): RunRequest | null { return this.text ? { ...this.clean, text: this.text } : null; }
  /** What the other text says in another way. */
  get differs(): string {
    const known = new Set(this.app.page.reads.text.split(/\s+/));
    return this.text.split(/\s+/).filter((word) => !known.has(word)).join(" ").replace(/\p{P}+$/u, "");
  }
  get run(): Run | null { return this.#run.value; }

  get position(): number {
    const { app } = this;
    return app.page.position ?? this.proposed?.position ?? (app.a ? firstAsked(app, app.a, null) : 0);
  }
  /** The likeliest answers of each text. */
  get wanted(): Choice[] { return this.app.a ? (answerOf(this.app.a, this.position, this.app.about.labels)?.top ?? []) : []; }
  get others(): Choice[] {
    const { app: { a, about }, run, position } = this;
    if (!run || !a) return [];
    const ids = [a, run].map(({ tokens }) => tokens.map(({ id }) => id)), last = run.tokens.length - 1;
    const at = position === ids[0]!.length - 1 ? last : (partners(ids[0]!, ids[1]!).find(([ours]) => ours === position)?.[1] ?? last);
    return answerOf(run, at, about.labels)?.top ?? [];
  }
  get answer(): number | null { return this.chosen.answer ?? this.wanted[0]?.id ?? null; }
  get minus(): number | null { return this.chosen.minus ?? this.others.find(({ id }) => id !== this.answer)?.id ?? null; }
  /** The one answer of both texts, until the reader chooses what to compare. */
  get one(): Choice | null {
    const { chosen, wanted, others } = this;
    return chosen.answer === null && chosen.minus === null && wanted[0] && wanted[0].id === others[0]?.id ? wanted[0] : null;
  }
  get choices(): [id: number, name: string][] { return [...new Map([...this.wanted, ...this.others].map((one) => [one.id, wordOf(one.text)]))]; }
  /** An answer without the mark of a space. */
  name(id: number | null): string { return (this.choices.find(([one]) => one === id)?.[1] ?? ""); }
}
