/** Exported files, written by tests/explorer/export_fixtures.py, answer what Python answers. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { Reply, Tensor } from "../../src/core/host";
import type { Fact, GenerateSettings, OverviewReply, RunReply, RunRequest } from "../../src/core/protocol";
import { readSafetensors } from "../../src/core/safetensors";
import { difference } from "../engine/fixtures";
import "../english";
import { fileOf, folder, hostOf, names } from "./files";

interface Case { question: { ask: "run"; run: RunRequest }; reply: string; near: number }

describe.each(names)("%s", (name) => {
  const host = hostOf(fileOf(name));
  const cases = JSON.parse(readFileSync(join(folder, `${name}.json`), "utf-8")) as Case[];

  test.each(cases.map((one) => [`${one.question.ask} ${one.reply}`, one] as const))("%s", async (_, { question, reply, near }) => {
    const { ask, ...asked } = question, got: Reply<unknown> = await host.ask(ask, asked);
    const { metadata, tensors } = readSafetensors(new Uint8Array(readFileSync(join(folder, reply))));
    let expected = JSON.parse(metadata.reply!) as unknown;
    if (ask === "run") return sameRun(got as Reply<RunReply>, { json: expected as RunReply, tensors }, near);
    if (ask === "overview") [got.json, expected] = [got.json, expected].map((one) => byAddress(one as OverviewReply, [got.json, expected]));
    close(got.json, expected, near);
    expect([...got.tensors.keys()].sort()).toEqual([...tensors.keys()].sort());
    for (const [key, tensor] of tensors) expect(difference(shut(got.tensors.get(key)!), shut(tensor), 1), key).toBeLessThanOrEqual(near);
  });

  test("what it cannot answer is refused in one line that says where it is, or what the limit is", async () => {
    const { json } = await host.ask("about", {}), reads = (text: string): Promise<unknown> => host.ask("run", { run: { ...json.start, text, image: null } });
    if (json.fixed === undefined && json.kind !== "image") {
      await expect(reads("one ".repeat(5000))).rejects.toThrow(/^The text has 50\d\d tokens. The page can look into at most \d+ of them here/);
      return;
    }
    expect(json.fixed, name).toBe(json.kind === "image" ? undefined : `clearhead explore ${json.name}`);
    await expect(reads("another")).rejects.toThrow(`open the model: clearhead explore ${json.name}`);
    if (!name.endsWith("_large")) return;
    const settings: GenerateSettings = { max_new_tokens: 24, beams: 2, temperature: 0, top_k: null, top_p: null, seed: 0 };
    await expect(host.ask("generate", { run: json.start, settings })).rejects.toThrow(json.answers.includes("generate") ? "holds its likeliest text of 24" : "does not answer");
    const at = `${json.name.startsWith("encoder_decoder") || json.name.startsWith("decoder") ? "decoder" : "encoder"}.blocks.0`;
    const edit = host.ask("run", { run: { ...json.start, edits: [{ at: `${at}.attn.z[h=1]`, do: "mean" }] } });
    await expect(edit).rejects.toThrow("without any one head. For other changes");
    await expect(host.ask("weights", { step: null, at: ["head.output.weight"] })).rejects.toThrow("leaves its parameters out");
  });
});

test.each(["decoder_pre_learned_live", "encoder_decoder_post_live"])("%s reads the text before a token that it wrote", async (name) => {
  const host = hostOf(fileOf(name)), { json: { start, kind } } = await host.ask("about", {}), translates = kind === "encoder-decoder";
  const run = { ...start, target: null }, settings = { max_new_tokens: 5, beams: 1, temperature: 0, top_k: null, top_p: null, seed: 0 };
  const { json: { text, best, nodes, steps } } = await host.ask("generate", { run, settings });
  const before = text.split(" ").slice(0, translates ? 2 : 3).join(" "), n = before.trim().split(" ").length;
  const { json, tensors } = await host.ask("run", { run: translates ? { ...run, target: before } : { ...run, text: run.text + before } });
  expect(json.tokens.decoder!.slice(-n).map((token) => token.id)).toEqual(best.slice(0, n).map((i) => nodes[i]!.id));
  const ids = tensors.get("output.ids")!;
  expect([...ids.data].slice(-20, -10)).toEqual(steps[n]!.top.map(([id]) => id));
});

test("a file that is cut short says so, wherever it is cut", async () => {
  for (const [cut, keep] of [["data", 500], ["weights-null", 100], ["data", 0]] as const) {
    const parts = fileOf("decoder_pre_learned_live");
    const name = [...parts.keys()].find((key) => key.startsWith(cut === "data" ? "data" : "weights"))!;
    parts.set(name, parts.get(name)!.slice(0, keep));
    await expect(hostOf(parts).ask("about", {})).rejects.toThrow("the file is cut short or was changed");
  }
});

/** Curves that are equally strong may come in any order, and of very many each side measures others first. */
function byAddress({ curves, ...rest }: OverviewReply, both: unknown[]): unknown {
  const known = both.map((one) => new Set((one as OverviewReply).curves?.map(({ at }) => at))), isMany = both.some((one) => (one as OverviewReply).curves?.length === 256);
  const own = curves?.filter(({ at }) => !isMany || known.every((ats) => ats.has(at)));
  if (isMany) expect(own!.length).toBeGreaterThan(100);
  return { ...rest, curves: own && Object.fromEntries(own.map((one) => [one.at, one])) };
}

/** As far as the file has it: of a head's absence it holds what is said in the end. */
function sameRun(got: Reply<RunReply>, expected: Reply<RunReply>, near: number): void {
  expect(got.json.tokens).toEqual(expected.json.tokens);
  expect(got.json.target).toEqual(expected.json.target);
  expect(got.json.grid).toEqual(expected.json.grid);
  expect(got.json.plan?.ops).toEqual(expected.json.plan?.ops);
  expect(got.json.plan?.masks).toEqual(expected.json.plan?.masks);
  const wanted = factsOf(expected.json.facts), found = factsOf(got.json.facts);
  if (near > 1e-3) expect(wanted).toMatchObject(found);
  else expect(found).toEqual(wanted);
  if (expected.tensors.has("output.lse")) return sameAnswer(got, expected, near);
  for (const [name, tensor] of got.tensors) same(name, tensor, expected.tensors.get(name)!, near);
}

/** The same words in the same order, each with its share: the words of all heads are in one list. */
function sameAnswer(got: Reply<RunReply>, expected: Reply<RunReply>, near: number): void {
  expect(got.json.words).toMatchObject(expected.json.words);
  expect([...got.tensors.get("output.ids")!.data]).toEqual([...expected.tensors.get("output.ids")!.data]);
  const shares = ({ tensors }: Reply<RunReply>): number[] => {
    const values = tensors.get("output.values")!, lse = tensors.get("output.lse")!, k = values.shape.at(-1)!;
    return Array.from(values.data, (x, i) => Math.exp(x - lse.data[Math.floor(i / k)]!));
  };
  close(shares(got), shares(expected), near);
  if (near > 1e-3) return;
  expect(difference(got.tensors.get("output.lse")!, expected.tensors.get("output.lse")!, 1)).toBeLessThanOrEqual(near);
  for (const [name, tensor] of expected.tensors) same(name, got.tensors.get(name)!, tensor, near);
}

/** Closed cells, which are NaN, as infinities: those are compared. */
function shut({ shape, data }: Tensor): Tensor {
  return { shape, data: Float32Array.from(data, (x) => (Number.isNaN(x) ? Infinity : x)) };
}

/** Pixels may be rounded to their neighbour. */
function same(name: string, got: Tensor, expected: Tensor, near: number): void {
  expect(got.shape, name).toEqual(expected.shape);
  if (name === "output.logits" && near > 1e-3) return;
  const off = Math.max(...Array.from(got.data, (x, i) => Math.abs(x - expected.data[i]!)));
  expect(off, name).toBeLessThanOrEqual(name.endsWith(".u8") ? 1 : near * Math.max(1, ...Array.from(expected.data, Math.abs)));
}

function factsOf(facts: Record<string, Fact>): Record<string, unknown> {
  const of = ({ shape, axes, by_hand = false }: Fact): unknown => ({ shape, axes, by_hand });
  return Object.fromEntries(Object.entries(facts).map(([at, fact]) => [at, of(fact)]));
}

/** Equal, but for numbers that are near. */
function close(got: unknown, expected: unknown, near: number, at = "reply"): void {
  if (typeof expected === "number" && typeof got === "number") {
    return expect(Math.abs(got - expected), at).toBeLessThanOrEqual(near * Math.max(1, Math.abs(expected)));
  }
  if (typeof expected !== "object" || expected === null || typeof got !== "object" || got === null) return expect(got, at).toEqual(expected);
  expect(Object.keys(got).sort(), at).toEqual(Object.keys(expected).sort());
  for (const [key, value] of Object.entries(expected)) close((got as Record<string, unknown>)[key], value, near, `${at}.${key}`);
}
