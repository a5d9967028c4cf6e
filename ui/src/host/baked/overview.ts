/** The overview of one answer, as clearhead/analysis/overview.py measures it: every number is that of a pass with one edit. */

import { parseAddress } from "../../core/address";
import type { Tensor } from "../../core/host";
import { CURVES, DECIDES, HEADS, LANES, LEAST_WEIGHT, REGIONS, TOGETHER, type CurveFacts, type Edit, type OverviewReply, type StackName } from "../../core/protocol";
import { floats, row, type Floats } from "../../core/tensor";
import { topIndices } from "../../core/top";
import { dot, lengths } from "../../core/vectors";
import type { Options, Pass } from "../../engine/forward";
import { Sweep, upTo } from "../../engine/sweep";
import { distributions } from "./analyses";

/** The milliseconds of work that heads may take; each other part has half as many. What they do not reach is not measured. */
const TIME = 8000;
const Z = /^(encoder|decoder)\.blocks\.\d+\.(attn|cross)\.z$/;

/** How much of each distribution moves, the probability of its likeliest answer, and what gains most. */
interface Moves { moved: number[]; p: number[]; risen: { id: number; p: number }[] }
export interface Heads { position: number; at: string[]; moved: Float32Array; p: Float32Array; best: number; instead: { id: number; p: number } | null }
/** A pass, what measures edits of it, and what it says. */
interface Near { pass: Pass; sweep: Sweep; expected: Float64Array[] }
type Pause = () => Promise<void>;
type Lanes = Partial<Record<StackName, number[][]>>;

export class Overview {
  readonly kind: "word" | "class" | "vector";
  readonly #stacks: StackName[];
  readonly #last: StackName;
  readonly #isVector: boolean; readonly #isByPosition: boolean; readonly #isPicture: boolean;
  readonly #path: string;
  readonly #asked: number | null;
  #heads: Heads | null = null;
  #near: Near | null = null;
  #lanes: Lanes | null = null;

  /** `toward` is the vector of another text; `asked` is the position of the answer; null: of those `among`, or of all, the one that a head moves most. `words` are the tokens of each. */
  constructor(private readonly pass: Pass, private readonly options: Options, asked: number | null, private readonly among: readonly number[], private readonly words: Lanes, private readonly toward: Float32Array | null) {
    const { config } = pass.plan, { kind } = config.head;
    this.#stacks = (["encoder", "decoder"] as const).filter((name) => config[name]);
    this.#last = this.#stacks.at(-1)!;
    this.#isVector = !pass.values.has("head.logits");
    this.#isByPosition = kind === "language" || kind === "tagging";
    this.#isPicture = config.encoder?.input.kind === "patches";
    this.#path = this.#isVector ? "head.unit" : "head.logits";
    this.kind = this.#isVector ? "vector" : kind === "language" ? "word" : "class";
    this.#asked = asked ?? (config.encoder && this.#isByPosition ? null : this.#length(this.#last) - 1);
  }

  #length(stack: StackName): number {
    return this.pass.values.get(`${stack}.blocks.0.resid_pre`)!.shape[0]!;
  }

  #groups(stack: StackName): number[][] {
    return (this.words[stack] ??= Array.from({ length: this.#length(stack) }, (_, i) => [i]));
  }

  // --- what is measured ---

  async heads(pause: Pause): Promise<Heads> {
    if (this.#heads) return this.#heads;
    const at = [...this.pass.values].flatMap(([path, { shape }]) => (Z.test(path) ? Array.from({ length: shape[0]! }, (_, h) => `${path}[h=${h}]`) : []));
    const near = this.#asked === null ? this.#at(this.pass, null) : this.#answer(this.#asked);
    const each = await this.#measure(at.map((site): Edit[] => [{ at: site, do: "zero" }]), near, TIME, pause);
    const most = (i: number): number => Math.max(...each.map((one) => one?.moved[i] ?? -1));
    const position = this.#asked ?? (this.among.length ? this.among : near.expected.map((_, i) => i)).reduce((best, i) => (most(i) > most(best) ? i : best));
    const of = (values: "moved" | "p"): Float32Array => Float32Array.from(each, (one) => one?.[values][this.#asked === null ? position : 0] ?? NaN);
    const moved = of("moved"), best = topIndices(moved.map((x) => (Number.isNaN(x) ? -1 : x)), 1)[0] ?? -1;
    return (this.#heads = { position, at, moved, p: of("p"), best, instead: each[best]?.risen[this.#asked === null ? position : 0] ?? null });
  }

  /** The head that moves the answer most; and where it makes no other answer likelier, the words, of those that `wordAt` knows, that do: one, one everywhere, or several; or where no head moves much of it, those that do. */
  async decided(wordAt: (stack: StackName, token: number) => string | null, pause: Pause): Promise<{ decided: NonNullable<OverviewReply["decided"]>; instead: { id: number; p: number } | null }> {
    const { position, moved, p: each, best, instead } = await this.heads(pause), decided = { head: best, moved: moved[best] ?? 0 }, isStrong = decided.moved >= DECIDES;
    if (isStrong && !(instead && instead.p <= each[best]!)) return { decided, instead };
    const [stack] = this.#stacks as [StackName], at = (tokens: readonly number[]): string[] => tokens.map((i) => `${stack}.blocks.0.resid_pre[t=${i}]`);
    const words = (await this.lanes(pause))[stack]!.filter((lane) => (this.#isPicture || this.#groups(stack).includes(lane)) && wordAt(stack, lane[0]!) && !(stack === this.#last && !this.#isPicture && lane.includes(position)));
    const near = this.#answer(position), was = near.expected[0]!, off = async (sites: readonly string[][]) => (await this.#measure(sites.map((all) => all.map((at): Edit => ({ at, do: "zero" }))), near, TIME / 2, pause)).map((one, i) => ({ at: sites[i]!, one, moved: one ? mean(one.moved) : -1 }));
    const sorted = async (sites: readonly string[][]) => (await off(sites)).sort((one, other) => other.moved - one.moved), texts = new Map(words.map((lane) => [at(lane)[0], lane.map((i) => wordAt(stack, i)).join("")])), some = await sorted(words.map(at)), p = this.#isVector ? dot(was, this.toward ?? was) : Math.exp(Math.max(...was)), falling = some.flatMap(({ at, one }) => (one && mean(one.p) < p ? [at] : [])).slice(0, TOGETHER), told = ({ at, moved, one }: (typeof some)[number]) => ({ at, moved, p: one && mean(one.p) });
    const found = { ...decided, words: some.filter(({ one }) => one).slice(0, LANES).map(told) };
    const everywhere = [...new Set(texts.values())].filter((text) => /[\p{L}\p{N}]/u.test(text)).map((text) => some.filter(({ at, one }) => one && texts.get(at[0]) === text)).flatMap((all) => (all[1] ? [all.flatMap(({ at }) => at)] : []));
    some.push(...(await sorted(everywhere)), ...(await off(falling.slice(1).map((_, i) => falling.slice(0, i + 2).flat()))));
    const strong = some.filter(({ moved }) => moved >= DECIDES), turned = this.#isPicture ? null : strong.find(({ one }) => one!.risen[0] && one!.risen[0].p > mean(one!.p)), part = turned ?? (isStrong ? null : (strong[0] ?? some.sort((one, other) => other.moved - one.moved)[0]));
    return part?.one && (turned || part.moved > decided.moved) ? { decided: { ...found, part: told(part) }, instead: part.one.risen[0] ?? null } : { decided: found, instead };
  }

  /** The likeliest answers at the position, with their probabilities; of a vector none. */
  async answers(n: number, pause: Pause): Promise<{ id: number; p: number }[]> {
    const { expected: [first] } = this.#answer((await this.heads(pause)).position);
    return this.#isVector ? [{ id: 0, p: dot(first!, this.toward ?? first!) }] : topIndices(first!, n).map((id) => ({ id, p: Math.exp(first![id]!) }));
  }

  /** The attention weights of the strongest heads, the strongest first. */
  async curves(pause: Pause): Promise<{ curves: CurveFacts[] }> {
    const { position, at, moved } = await this.heads(pause), made = this.pass.plan.config.head.pool === "first" ? 0 : position, near = this.#answer(position), { values } = near.pass, regions = this.#isPicture ? (await this.lanes(pause)).encoder! : null;
    const edited = new Set(this.pass.edits.map((edit) => edit.at)), cells: { at: string; weight: number; strength: number; edit: Edit }[] = [];
    for (const i of [...at.keys()].sort((a, b) => (moved[b]! || 0) - (moved[a]! || 0)).slice(0, HEADS)) {
      const { path, index: [[, h]] } = parseAddress(at[i]!) as { path: string; index: [[string, number]] }, part = path.slice(0, -2), stack = path.startsWith("decoder") ? "decoder" : "encoder", isCross = part.endsWith("cross");
      if (Number.isNaN(moved[i]) || edited.has(path) || edited.has(at[i]!)) continue;
      const [weights, z, v] = ["weights", "z", "v"].map((name) => values.get(`${part}.${name}`)!) as [Floats, Floats, Floats];
      const [, n, m] = weights.shape as [number, number, number], keys = floats(v.shape.slice(1), row(v, Math.floor((h * v.shape[0]!) / weights.shape[0]!)) as Float32Array), given = lengths(keys.data, m);
      for (let t = 0; t < (stack === "decoder" ? Math.min(n, position + 1) : n); t++) {
        if (regions?.some((lane) => lane.length > 1 && lane.includes(t))) continue;
        for (const lane of regions ?? this.#groups(isCross ? "encoder" : stack)) {
          if (!isCross && lane[1] && lane.includes(t)) continue;
          const [s] = lane as [number], each = lane.map((s) => weights.data[(h * n + t) * m + s]!), weight = each.reduce((sum, x) => sum + x, 0);
          if (weight < Math.fround(LEAST_WEIGHT)) continue;
          const value = Array.from(row(z, h, t), (x, k) => lane.reduce((left, s, i) => left - each[i]! * row(keys, s)[k]!, x));
          cells.push({ at: `${part}.weights[h=${h},t=${t},s=${s}]`, weight, strength: (moved[i]! * weight * given[s]!) / mean([...given]) / Math.sqrt(1 + Math.abs(made - t)), edit: { at: `${path}[h=${h},t=${t}]`, do: "set", value } });
        }
      }
    }
    const some = cells.length <= CURVES ? cells : topIndices(cells.map(({ strength }) => strength), CURVES).map((i) => cells[i]!);
    const each = await this.#measure(some.map(({ edit }) => [edit]), near, TIME / 2, pause);
    const curves = some.flatMap(({ at, weight }, i): CurveFacts[] => {
      const one = each[i];
      return one ? [{ at, moved: mean(one.moved), p: mean(one.p), weight }] : [];
    });
    return { curves: curves.sort((a, b) => b.moved - a.moved) };
  }

  /** The tokens of each lane: regions of a picture; of a long text those whose first state moves most, after a lane with the others. */
  async lanes(pause: Pause): Promise<Lanes> {
    if (this.#lanes) return this.#lanes;
    const made: Lanes = {};
    for (const stack of this.#stacks) {
      const all = this.#groups(stack), own = all.length <= LANES || this.#isPicture ? all : await this.#strongest(stack, all, pause);
      made[stack] = this.#isPicture ? this.#regions(this.#length(stack)) : [...(own.length < all.length ? [all.filter((lane) => !own.includes(lane)).flat().sort((a, b) => a - b)] : []), ...own];
    }
    return (this.#lanes = made);
  }

  #regions(length: number): number[][] {
    const { image_size = 1, patch_size = 1 } = this.pass.plan.config.encoder!.input, side = image_size / patch_size, before = length - side * side, n = Math.min(REGIONS, side);
    const bounds = Array.from({ length: n }, (_, i) => Array.from({ length: Math.floor(side / n) + Number(i < side % n) }, (_, k) => i * Math.floor(side / n) + Math.min(i, side % n) + k));
    return [...Array.from({ length: before }, (_, i) => [i]), ...bounds.flatMap((rows) => bounds.map((columns) => rows.flatMap((y) => columns.map((x) => before + y * side + x))))];
  }

  async #strongest(stack: StackName, all: readonly number[][], pause: Pause): Promise<number[][]> {
    const { position } = await this.heads(pause), at = `${stack}.blocks.0.resid_pre`, some = all.filter(([i]) => this.#reaches(stack, i!, position, false));
    const each = await this.#measure(some.map((lane) => lane.filter((i) => this.#reaches(stack, i, position, false)).map((i): Edit => ({ at: `${at}[t=${i}]`, do: "zero" }))), this.#answer(position), TIME / 2, pause);
    const strength = all.map((lane) => (lane.includes(position) && this.#isByPosition && stack === this.#last ? Infinity : mean(each[some.indexOf(lane)]?.moved ?? [-1])));
    return topIndices(strength, LANES - 1).sort((a, b) => a - b).map((i) => all[i]!);
  }

  /** l n: how much of the answer moves if a lane of each stream, or of each feed-forward's output, becomes 0. */
  async streams(part: "lanes" | "ffn", pause: Pause): Promise<Map<string, Tensor>> {
    const { position } = await this.heads(pause), every = await this.lanes(pause), found = new Map<string, Floats>();
    const cells: { out: Floats; at: number }[] = [], sets: Edit[][] = [];
    for (const stack of this.#stacks) {
      const n = this.pass.plan.config[stack]!.n_layers, blocks = Array.from({ length: n }, (_, i) => `${stack}.blocks.${i}`);
      const paths = part === "ffn" ? blocks.map((at) => `${at}.ffn.out`) : [...blocks.map((at) => `${at}.resid_pre`), `${blocks.at(-1)}.resid_post`];
      const lanes = every[stack]!, out = floats([paths.length, lanes.length]);
      found.set(stack, out);
      for (const [i, path] of paths.entries()) for (const [j, lane] of lanes.entries()) {
        const reaching = lane.filter((t) => this.#reaches(stack, t, position, i === paths.length - 1));
        if (!reaching.length) continue;
        cells.push({ out, at: i * lanes.length + j });
        sets.push(reaching.map((t) => ({ at: `${path}[t=${t}]`, do: "zero" })));
      }
    }
    const each = await this.#measure(sets, this.#answer(position), TIME / 2, pause);
    for (const [i, { out, at }] of cells.entries()) out.data[at] = each[i] ? mean(each[i].moved) : NaN;
    return found;
  }

  #reaches(stack: StackName, t: number, position: number, isEnd: boolean): boolean {
    return stack !== this.#last || !this.#isByPosition || t === position || (!isEnd && (stack === "encoder" || t < position));
  }

  // --- how ---

  /** What measures the answer at one position. */
  #answer(position: number): Near {
    return (this.#near ??= this.#isByPosition ? this.#at(upTo(this.pass, position, this.options), position) : this.#at(this.pass, null));
  }

  #at(pass: Pass, position: number | null): Near {
    const sweep = new Sweep(pass, position, this.options);
    return { pass, sweep, expected: this.#said(sweep.result(this.#path, [])) };
  }

  /** Log probabilities, one row for each distribution; or the vector. */
  #said(result: Floats): Float64Array[] {
    return this.#isVector ? [Float64Array.from(result.data)] : distributions(result, this.pass.plan.config.head.kind);
  }

  async #measure(sets: readonly (readonly Edit[])[], { sweep, expected }: Near, time: number, pause: Pause): Promise<(Moves | null)[]> {
    const found: (Moves | null)[] = [], toward = this.toward ?? expected[0]!, best = expected.map((logs) => topIndices(logs, 1)[0]!);
    let left = time;
    for (const edits of sets) {
      const began = performance.now(), said = left > 0 ? this.#said(sweep.result(this.#path, edits)) : null;
      found.push(said && (this.#isVector ? { moved: [Math.abs(dot(said[0]!, toward) - dot(expected[0]!, toward))], p: [dot(said[0]!, toward)], risen: [] }
        : { moved: said.map((logs, i) => logs.reduce((sum, x, j) => sum + Math.abs(Math.exp(x) - Math.exp(expected[i]![j]!)), 0) / 2), p: said.map((logs, i) => Math.exp(logs[best[i]!]!)), risen: said.map((logs, i) => topIndices(logs.map((x, j) => Math.exp(x) - Math.exp(expected[i]![j]!)), 1)[0]!).map((id, i) => ({ id, p: Math.exp(said[i]![id]!) })) }));
      left -= performance.now() - began;
      await pause();
    }
    return found;
  }
}

function mean(numbers: readonly number[]): number {
  return numbers.reduce((sum, x) => sum + x, 0) / numbers.length;
}
