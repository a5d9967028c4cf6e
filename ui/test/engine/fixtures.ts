/** Runs of PyTorch, written by `python -m tests.explorer.engine_fixtures FOLDER`; CLEARHEAD_FIXTURES is the folder. */

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Tensor } from "../../src/core/host";
import type { Edit, Plan, StackName, Token } from "../../src/core/protocol";
import { readSafetensors } from "../../src/core/safetensors";
import { largest } from "../../src/core/tensor";
import type { Other } from "../../src/engine/edits";
import { numbersOf } from "../../src/engine/forward";

export interface Fixture {
  name: string;
  plan: Plan;
  edits: Edit[];
  axes: Record<string, string>;
  numbers: Map<string, Tensor>;
  weights: Map<string, Tensor>;
  /** As PyTorch made them, of every tapped address. */
  values: Map<string, Tensor>;
  /** Of the run that patches come from. */
  other: Other;
}

function folder(): string {
  const found = process.env.CLEARHEAD_FIXTURES;
  if (!found || !existsSync(join(found, "index.json"))) {
    throw new Error(
      "CLEARHEAD_FIXTURES: expected the folder of the fixtures, got none;" +
        " run `python -m tests.explorer.engine_fixtures FOLDER` in the repository, then set it to FOLDER",
    );
  }
  return found;
}

export function tensorsOf(name: string): Map<string, Tensor> {
  return readSafetensors(new Uint8Array(readFileSync(join(folder(), `${name}.safetensors`)))).tensors;
}

export function load(name: string): Fixture {
  const document = JSON.parse(readFileSync(join(folder(), `${name}.json`), "utf-8")) as {
    plan: Plan;
    edits: Edit[];
    axes: Record<string, string>;
    tokens: Partial<Record<StackName, Token[]>>;
  };
  const tensors = tensorsOf(name);
  const part = (group: string): Map<string, Tensor> => {
    const inside = [...tensors].filter(([key]) => key.startsWith(`${group}/`));
    return new Map(inside.map(([key, tensor]) => [key.slice(group.length + 1), tensor]));
  };
  const others = part("other");
  return {
    ...document,
    name,
    numbers: numbersOf(document.plan.config, document.tokens, tensors.get("pixels")),
    weights: part("weights"),
    values: part("values"),
    other: (_, path) => others.get(path) ?? { shape: [], data: new Float32Array() },
  };
}

let loaded: Fixture[] | null = null;

export function fixtures(): Fixture[] {
  loaded ??= (JSON.parse(readFileSync(join(folder(), "index.json"), "utf-8")) as string[]).map(load);
  return loaded;
}

/** The largest difference as a share of `atLeast` or of the largest number; infinities must be at the same places. */
export function difference(got: Tensor, expected: Tensor, atLeast: number): number {
  if (String(got.shape) !== String(expected.shape)) return Infinity;
  let most = 0;
  for (let i = 0; i < expected.data.length; i++) {
    const a = got.data[i]!, b = expected.data[i]!;
    if (a !== b) most = Math.max(most, Number.isNaN(a - b) ? Infinity : Math.abs(a - b));
  }
  return most / Math.max(atLeast, largest(expected.data));
}

/** A repeatable source of numbers in [0, 1). */
export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}
