/** What the overview asks: of the run as it is, and of the run with the reader's edits. Each part is drawn when it is there. */

import { load, softmax, wordOf, type Explorer, type Run } from "../../parts/kit";
import { dot } from "../../core/vectors";
import { answers, logitsOf } from "../answers.svelte";
import { curvesIn, headsIn, lanesIn, type Curve, type Heads, type Lanes } from "./story";

type Part = "heads" | "curves" | "lanes" | "ffn";
export interface Side {
  readonly run: Run | null; readonly curves: Curve[] | null; readonly lanes: Lanes | null; readonly ffn: Lanes | null;
  /** The likeliest answer after each block. */
  readonly lens: { word: string; p: number }[] | null;
  /** The probability of every answer. */
  readonly shares: Float64Array | null;
}

/** A text with its vector, and the cosine with that of the run. */
export interface Near { word: string; unit: ArrayLike<number>; p: number }
export interface Measured { readonly heads: Heads | null; readonly near: Near[] | null; readonly error: string | null; readonly a: Side; readonly b: Side }

/** An answer counts while its run is the one that is shown. */
interface Of<T> { run: Run; position: number | null; value: T }

/** Whether every position can be asked about: a file without the model holds one. */
export const asksAnywhere = ({ about }: Explorer): boolean => about.answers.includes("weights");

/** The run without what stands at some addresses. */
export const zeroed = (app: Explorer, run: Run, sites: readonly string[]): Promise<Run> => app.runOf({ ...$state.snapshot(run.request), edits: sites.map((at) => ({ at, do: "zero" })) });

export function measured(app: Explorer): Measured {
  const { host, about } = app;
  const ask = (part: Part, run: Run, position: number | null, signal: AbortSignal) => host.ask("overview", { run: run.request, part, ...(position !== null && { position }), ...(near.value?.value[0] && { near: near.value.value[0].word }) }, signal);
  const plain = (): Run | null => (app.page.other ? app.shown : app.a), edited = (): Run | null => (app.page.other ? null : app.b);
  const wanted = (): number | null => (answers(app) === "one" ? null : app.page.position);
  /** The texts that a vector is nearest to, and the farthest. */
  const near = load(async () => {
    const run = plain(), other = app.page.other?.text;
    if (!run?.op("head.unit")) return null;
    const texts = [...new Set([...(other ? [other] : []), ...about.examples.map(({ text }) => text)])].filter((text) => text && text !== run.request.text), runs = texts.map((text) => app.runOf({ ...run.request, text, edits: [] }));
    const [own, ...units] = await Promise.all([run, ...(await Promise.all(runs))].map(async (one) => (await one.value("head.unit")).data));
    return { run, value: texts.map((word, i): Near => ({ word, unit: units[i]!, p: dot(own!, units[i]!) })).sort((one, other) => other.p - one.p).filter((_, i, all) => i < 3 || i === all.length - 1) };
  });
  const heads = load((signal) => {
    const run = plain(), position = wanted();
    return !run || (run.op("head.unit") && near.value?.run !== run && !near.error) ? null : ask("heads", run, position, signal).then((reply): Of<Heads> => ({ run, position, value: headsIn(reply) }));
  });
  const known = $derived(heads.value?.run === plain() && heads.value.position === wanted() ? heads.value.value : null);

  function side(of: () => Run | null): Side {
    /** A part of this run, at the position that the heads were measured at. */
    function part<T>(make: (run: Run, position: number, signal: AbortSignal) => Promise<T> | null): { readonly value: T | null } {
      const found = load((signal) => {
        const run = of(), position = known?.position, made = run && position !== undefined ? make(run, position, signal) : null;
        return made && made.then((value): Of<T> => ({ run: run!, position: position!, value }));
      });
      return { get value() { return found.value?.run === of() && found.value.position === known?.position ? found.value.value : null; } };
    }
    const curves = part((run, position, signal) => ask("curves", run, position, signal).then(curvesIn));
    const lanes = part((run, position, signal) => ask("lanes", run, position, signal).then(lanesIn));
    const ffn = part((run, position, signal) => ask("ffn", run, position, signal).then(lanesIn));
    const lens = part((run, position, signal) => (answers(app) === "none" || !about.answers.includes("lens") ? null : lensAt(app, run, position, known, signal)));
    const shares = part((run, position) => (answers(app) === "none" ? null : logitsOf(app, run, position)?.then(({ data }) => softmax(data)) ?? null));
    return { get run() { return of(); }, get curves() { return curves.value; }, get lanes() { return lanes.value; }, get ffn() { return ffn.value; }, get lens() { return lens.value; }, get shares() { return shares.value; } };
  }
  const a = side(plain), b = side(edited);
  return { get heads() { return known; }, get near() { return near.value?.value ?? null; }, get error() { return heads.error; }, a, b };
}

/** What the model would answer if it stopped before its first block, after that, and so on; words that are `known` need no name. */
export async function lensAt({ host, about }: Explorer, run: Run, position: number, known: Heads | null, signal: AbortSignal): Promise<Side["lens"]> {
  const { kind, pool } = about.plan.config.head, only = pool === "first" ? 0 : position, whole = kind === "classification" && pool !== "first" && pool !== "last";
  const { json, tensors } = await host.ask("lens", { run: run.request, k: 1, ...(whole ? { whole } : { position: only }) }, signal), ids = tensors.get("ids")!, p = tensors.get("probabilities")!;
  const [states = 0, n = 1, k = 1] = ids.shape;
  const asked = Math.min(only, n - 1); // A file answers for all positions.
  return Array.from({ length: states }, (_, i) => {
    const at = (i * n + asked) * k, id = ids.data[at] ?? 0;
    return { word: wordOf(about.labels?.[id] ?? [...(known?.answers ?? []), known?.instead].find((one) => one?.id === id)?.word ?? json.words[id] ?? `#${id}`), p: p.data[at] ?? 0 };
  });
}
