/** The axes of every step by its address, and which steps have a tap. Tapped steps can be edited and are stored. */

import type { Fact } from "../core/protocol";
import type { Floats } from "../core/tensor";

/** Attention weights, whose rows sum to 1: those of a state, `.mix.weights`, are no shares. */
export const SHARES = /\.(attn|cross)\.weights$/;

type Axes = [end: RegExp, axes: string];

/** docs/glossary.md says what the letters mean. */
const TAPPED: Axes[] = [
  [/\.embed\.(tokens|positions|sum)$/, "t d"],
  [/\.embed\.conv1$/, "x d"],
  [/\.resid_(pre|mix|attn|cross|post)$/, "t d"],
  [/\.[kv]$/, "h s k"],
  [/\.(attn|mix|cross|ffn|shared)(_scale)?\.out$|\.(mix|ffn)\.(input|conv|[xbcyz]|gate)$/, "t d"],
  [/\.[qz]$|\.(attn|mix|cross)\.(gate|read)$|\.mix\.norm\.(rstd|out)$/, "h t k"],
  [/\.(attn|cross)\.(scores|masked|weights)$|\.mix\.(overlap|corrections|match|weights)$/, "h t s"],
  [/\.mix\.(decay|rate|step)$/, "t h"],
  [/\.(attn|mix|cross)\.heads$/, "h t d"],
  [/\.(ffn|shared)\.(pre|post)$/, "e t f"],
  [/\.ffn\.experts$/, "e t d"],
  [/\.router\.(logits|probabilities|chosen|shares)$/, "t e"],
  [/\.distance\.(c2p|p2c)$/, "h t s"],
  [/\.positions(\.scored)?\.norm\.(mean|rstd|out)$/, "r d"],
  [/\.q_norm\.(mean|rstd|out)$/, "h t k"],
  [/\.k_norm\.(mean|rstd|out)$/, "h s k"],
  [/\.convolutions\.\d+\.(norm\.(mean|rstd|out)|out)$/, "x c"],
  [/norm\.(mean|rstd|out)$/, "t d"],
  [/^head\.logits$/, "t v"],
  [/^head\.vector$/, "t d"],
];

const UNTAPPED: Axes[] = [
  [/\.embed\.pixels$/, "c y x"],
  [/\.embed\.(frames|samples)$|\.convolutions\.\d+\.linear$/, "x c"],
  [/\.around\.linear$|\.mix$/, "t d"],
  [/\.mix$/, "h t k"],
  [/\.embed\.conv1\.(joined|linear)$/, "x f"],
  [/\.embed\.conv2\.(joined|linear)$/, "t f"],
  [/\.scores\.(product|scaled|capped|bias)$|\.mix\.products(\.shared)?$/, "h t s"],
  [/\.distance\.(bias|with_(c2p|p2c|bias))$/, "h t s"],
  [/\.distance\.c2p\.product$/, "h t r"],
  [/\.distance\.p2c\.product$/, "h s r"],
  [/\.distance\.(c2p|p2c)\.(split|repeat)$/, "h r k"],
  [/\.distance\.(c2p|p2c)\.linear$/, "r f"],
  [/\.distance\.c2p\.state$/, "h t k"],
  [/\.distance\.p2c\.state$/, "h s k"],
  [/\.positions(\.scored)?\.rows$/, "r d"],
  [/\.q\.split$/, "h t k"],
  [/\.[kv]\.(split|repeat)$/, "h s k"],
  [/\.[kv]\.linear$/, "s f"],
  [/\.(q\.linear|unfolded)$/, "t f"],
  [/\.(ffn|shared)\.(act|up)$/, "e t f"],
  [/\.ffn\.outputs$/, "e t d"],
  [/\.router\.(kept|normalised|scaled)$|\.shared_gate\.(logit|share)$/, "t e"],
  [/^head\.(uncapped|undistilled|distilled|both)$/, "t v"],
  [/\.embed\.(lookup|scaled|kept|factors|types|patches|projected|widened)$|_sum$|\.ffn\.sum$|\.shared_gate\.out$|^head\.(scaled|pool|unit|query|sum|first|second|mean|pooler|pooled|dense|act)$/, "t d"],
];

/** The axes of a tapped value with `rank` axes; null if it has no tap. Pooled values have no axis of positions. */
export function axesOf(path: string, rank: number): string | null {
  return found(TAPPED, path, rank);
}

/** All axes that a tapped value may have. */
export function tappedAxes(path: string): string | null {
  return TAPPED.find(([end]) => end.test(path))?.[1] ?? null;
}

/** The axes of any value, tapped or not. A step on the way to another, `….ffn.act.relu`, has the axes of that. */
export function lettersOf(path: string, rank: number): string | null {
  const above = path.lastIndexOf(".");
  return found(TAPPED, path, rank) ?? found(UNTAPPED, path, rank) ?? (above < 0 ? null : lettersOf(path.slice(0, above), rank));
}

function found(table: Axes[], path: string, rank: number): string | null {
  const axes = table.find(([end, letters]) => end.test(path) && letters.split(" ").length >= rank)?.[1].split(" ");
  return axes ? axes.slice(axes.length - rank).join(" ") : null;
}

/** The facts of stored values. Masked scores follow from a mask, so they are stored only if they are edited. */
export function factsOf(values: ReadonlyMap<string, Floats>, edited: ReadonlySet<string>): Record<string, Fact> {
  const facts: [string, Fact][] = [];
  for (const [path, { shape }] of values) {
    const axes = axesOf(path, shape.length), byHand = edited.has(path);
    if (axes === null || (path.endsWith(".masked") && !byHand)) continue;
    facts.push([path, { shape, axes, by_hand: byHand }]);
  }
  return Object.fromEntries(facts);
}
