/** What the model writes, A and B, and the settings it writes with: kept while the reader is in other views. */

import { messageOf } from "../../core/errors";
import type { GenerateReply, GenerateSettings, RunRequest } from "../../core/protocol";
import type { Explorer } from "../../parts/kit";
import { oneOfEach } from "../../state/each";
import { text as literal, type Told } from "../../state/python";
import { requestA, requestB } from "../../state/page";
import { prefixOf } from "./tree";

export class Generation {
  settings: GenerateSettings = $state({ max_new_tokens: 24, beams: 1, temperature: 0, top_k: null, top_p: null, seed: 0 });
  a = $state.raw<GenerateReply | null>(null);
  b = $state.raw<GenerateReply | null>(null);
  /** The selected step: the number of tokens before it. */
  at = $state(0);
  busy = $state(false);
  error = $state<string | null>(null);
  /** The text, edits and settings that `a` and `b` were written with. */
  #made = "";
  #writing = new AbortController();

  constructor(readonly app: Explorer) {}

  /** Of the chosen side. */
  get shown(): GenerateReply | null {
    return this.app.side === "b" ? this.b : this.a;
  }

  /** Whether the text, an edit or a setting has changed since. */
  get stale(): boolean {
    return this.a !== null && this.#made !== this.#wanted;
  }

  /** What Python writes with the same settings; null for edits, which are made at their own positions here. */
  get code(): Told | null {
    const { app, settings: { max_new_tokens, beams, temperature, top_k, top_p, seed } } = this, cuts = temperature > 0 && beams === 1;
    if (app.side !== "a" && app.b?.request.edits.length) return null;
    const given = Object.entries({ max_new_tokens, beams, temperature: beams > 1 ? 0 : temperature, top_k: cuts ? top_k : null, top_p: cuts ? top_p : null, min_p: null, seed });
    const fields = given.map(([name, value]) => `${name}=${value ?? "None"}`).join(", ");
    const reads = literal((app.shown ?? app.a)!.request.text);
    return { imports: [], lines: [`print(model.${app.about.kind === "encoder-decoder" ? `translate([${reads}]` : `generate(${reads}`}, ${fields}))`] };
  }

  /** Nobody waits for what is being written any more. */
  stop(): void {
    this.#writing.abort();
  }

  /** Writes with the page as it is now. */
  async write(): Promise<void> {
    this.stop();
    const { signal } = (this.#writing = new AbortController());
    const { host, page } = this.app;
    const wanted = this.#wanted;
    const second = requestB(page);
    [this.busy, this.error] = [true, null];
    try {
      const ask = (run: RunRequest): Promise<GenerateReply> =>
        host.ask("generate", { run: this.#start(run), settings: $state.snapshot(this.settings) }, signal).then(({ json }) => json);
      const [a, b] = await Promise.all([ask(requestA(page)), second && ask(second)]);
      const chances = a.best.map((i) => a.nodes[i]!.log_prob);
      const { decided } = this.app, i = decided?.position ?? -1, told = decided?.head && a.nodes[a.best[i] ?? -1]?.id === decided.head.was.id;
      [this.a, this.b, this.at, this.#made] = [a, b, told ? i : Math.max(0, chances.indexOf(Math.min(...chances))), wanted];
    } catch (error) {
      if (!signal.aborted) this.error = messageOf(error);
    } finally {
      if (signal === this.#writing.signal) this.busy = false;
    }
  }

  /** Shows the attention that wrote the step's token: the page reads the text before it. */
  async explain(): Promise<void> {
    const { app, shown } = this;
    if (!shown) return;
    const before = prefixOf(shown.text, shown.best.slice(0, this.at).map((i) => shown.nodes[i]?.text ?? ""));
    const { reads } = app.page;
    const translates = app.about.kind === "encoder-decoder";
    const text = app.about.has_tokenizer ? reads.text + before : [reads.text, before].filter(Boolean).join(" ");
    await app.act({ reads: translates ? { ...reads, target: before } : { ...reads, text } });
    const last = Math.max(0, (app.shown?.tokens.length ?? 1) - 1);
    app.go({ view: "attention", stack: "decoder", part: translates ? "cross" : "attn", step: "softmax", query: last, position: last });
  }

  get #wanted(): string {
    const { reads, other, edits, change } = this.app.page;
    return JSON.stringify([reads, other, edits, change, this.settings]);
  }

  /** An encoder-decoder writes its target from the beginning. */
  #start(run: RunRequest): RunRequest {
    return this.app.about.kind === "encoder-decoder" ? { ...run, target: null } : run;
  }
}

export const generation = oneOfEach(Generation);
