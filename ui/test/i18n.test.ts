import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { KEYS } from "../src/parts/keys";
import { PLACES } from "../src/state/places";

const source = new URL("../src/", import.meta.url);
const read = (path: string): string => readFileSync(new URL(path, source), "utf8");
const files = readdirSync(source, { recursive: true, encoding: "utf8" });

function catalogue(language: string): Record<string, string> {
  const own = files.filter((path) => path.endsWith(".json") && path.startsWith(`i18n/${language}.`));
  const ofPlaces = files.filter((path) => /^views\/.*texts\.json$/.test(path)).map((path) => JSON.parse(read(path))[language]);
  const all = [...own.map((path) => JSON.parse(read(path))), ...ofPlaces, JSON.parse(read("views/python.json"))] as Record<string, string>[];
  return Object.fromEntries(all.flatMap((texts) => Object.entries(texts)));
}
const en = catalogue("en");
const languages = ["de", "es", "fr", "ja", "zh"];
const others = Object.fromEntries(languages.map((name) => [name, catalogue(name)]));
const fr = others["fr"]!;
const isCode = (path: string): boolean => /\.(svelte|ts)$/.test(path) && !path.startsWith("i18n/");
const code = files.filter(isCode).map(read).join("\n");
/** The sentences of walks are keys of the catalogue too. */
const walks = files.filter((path) => path.startsWith("walks/")).map(read).join("\n");

/** What may follow each prefix in a key that the code puts together. One that is not listed fails a test below. */
const positions = "sinusoidal learned rotary relative alibi none";
const heads = "language classification tagging span none vector";
const kinds = "previous same next first uniform other";
const views = PLACES.map(({ name }) => name).join(" ");
const steps = [...code.matchAll(/\bstep\(([^[]+), \[/g)].flatMap((call) => call[1]!.match(/\w+(?=")/g) ?? []).join(" ");
const followers: Record<string, string> = {
  "answer.": heads,
  "attention.": "product scores weights",
  "change.": "on zero mean",
  "circuits.key.": "way edge against",
  "circuits.side.": "q k v",
  "circuits.at.": "attn cross",
  "circuits.term.": "place change gradient product",
  "difference.": "own total first second changed kl loss accuracy",
  "do.": "zero mean set scale close patch add",
  "examples.bands": " _cross", "examples.looks": " _cross", "examples.strongest": " _cross", "examples.towards": " _cross",
  "examples.from.": "given valid train samples sentences prompts",
  "examples.kind.": "weights output unit state",
  "examples.measure.": "weight weight_cross norm value towards",
  "exercise.told.": "nothing outside fails sign place hundred other other_number",
  "explain.": "qkv scores scaled masked softmax weighted",
  "ffn.name.": "relu gelu gelu_tanh silu tanh",
  "form.": "map steps lines",
  "geometry.from_": "embedding before a",
  "heads.by_": "place effect kind",
  "heads.fact.": "previous same next first",
  "heads.kind.": kinds,
  "heads.kind_note.": kinds,
  "heads.short.": "encoder decoder cross",
  "key.": KEYS.map(([, what]) => what).join(" "),
  "kind.": "encoder-decoder decoder encoder image",
  // The other forms of arithmetic name their sentences themselves.
  "made.": "sum mean product function share part chosen rotation wave taken bucket slope mask",
  "made.axis.": "t s h d k f v e c y x",
  "made.step.": steps,
  "mode.": "learn explore research",
  "next.": "embedding attention output residual ffn lens logits",
  "norm.part.": "attn cross ffn final",
  "norm.place.": "pre post sandwich branch",
  "overview.": "self cross mix encoder decoder head head_of at at_stack at_cross of of_stack of_cross off off_over off_now off_none now now_over now_now now_none",
  "overview.does_": "next number sort fr de es pair language classification tagging span none image sound",
  "overview.out_": "next number sort language classification tagging span",
  "patching.": "answer minus",
  "patching.at.": "attn cross ffn resid_pre",
  "patching.of.": "resid attn ffn heads",
  "set.found.": "patch ablate nodes",
  "set.of.": "own ioi greater_than pronouns agreement template",
  "set.type.": "own template",
  "gap.": ["cross_ab", "difference_abc", "examples_a", "features_abcdefgh", "generation_a", "image_abc", "patching_abcde", "steering_abc", "tokens_ab", "training_abcdef", "vector_ab"].map((name) => `${name.split("_")[0]} ${[...name.split("_")[1]!].map((part) => `${name.split("_")[0]}_${part}`).join(" ")}`).join(" "),
  "position.": `${positions} fast slow back`,
  "positions.": positions,
  "residual.head.": "part stream adds ratio cosine after switch",
  "residual.part.": "attn cross ffn",
  "stack.": "encoder decoder",
  "state.": "state_space selective_scan time_mixing gated_delta short_convolution",
  "steps.": "steps whole",
  "step.": "qkv scores scaled masked softmax weighted",
  "steering.": "positive negative",
  "tree.": "kept dropped final",
  "vector.": "states mean first second last linear unit norm rstd tanh relu gelu copy add scale join activation",
  "view.": views,
  "own.": "add play save open undo close up down remove ask choices because",
  "walk.": "printed here",
  "walk.verdict.": "reproduces rounding wrong nothing_printed cannot_be_checked",
  "what.": "goes.norm goes.position goes.closed stays.norm stays.position stays.closed",
};
const composed = Object.entries(followers).flatMap(([prefix, names]) => names.split(" ").map((name) => prefix + name));

const keyed = /["']([a-z]\w*(?:\.[\w-]+)+)["']/g;
const keysIn = (text: string): string[] => [...text.matchAll(keyed)].map((match) => match[1]!);

/** The keys in the first argument of every call of `t` (and of methods named `say` that hand a key on). */
function called(): string[] {
  const keys: string[] = [];
  for (const call of code.matchAll(/(?:\bt|#say)\(/g)) {
    const start = call.index + call[0].length;
    let depth = 0, end = start;
    for (; end < code.length; end++) {
      const sign = code[end]!;
      if ("([{".includes(sign)) depth++;
      else if (")]}".includes(sign) && depth-- === 0) break;
      else if (sign === "," && depth === 0) break;
    }
    keys.push(...keysIn(code.slice(start, end)));
  }
  return keys;
}

const placeholders = (text: string): string[] => [...new Set(text.match(/\{\w+\}/g))].sort();

describe("the catalogue", () => {
  it("is there in every language that has a file", () => {
    const found = files.flatMap((path) => /^i18n\/(\w+)\.(?:\w+\.)?json$/.exec(path)?.[1] ?? []);
    expect([...new Set(found)].sort()).toEqual([...languages, "en"].sort());
  });

  it.each(languages)("has the same keys in %s", (name) => {
    expect(Object.keys(others[name]!).sort()).toEqual(Object.keys(en).sort());
  });

  it.each(languages)("has the same placeholders in %s", (name) => {
    for (const [key, text] of Object.entries(en)) {
      expect(placeholders(others[name]![key] ?? ""), key).toEqual(placeholders(text));
    }
  });

  it("has no empty text", () => {
    for (const texts of [en, ...Object.values(others)]) {
      expect(Object.keys(texts).filter((key) => !texts[key]?.trim())).toEqual([]);
    }
  });

  it.each([["de", "„", "“"], ["es", "«", "»"], ["fr", "«", "»"], ["ja", "「", "」"], ["zh", "“", "”"]])(
    "quotes in %s as that language does", (name, open, close) => {
      const count = (text: string, sign: string): number => text.split(sign).length - 1;
      const wrong = (text: string): boolean =>
        count(text, open) !== count(text, close) || [..."„“”«»「」"].some((sign) => sign !== open && sign !== close && text.includes(sign));
      expect(Object.entries(others[name]!).filter(([, text]) => wrong(text)).map(([key]) => key)).toEqual([]);
    },
  );

  it("is set in French as French is: narrow spaces before high signs and inside quotation marks", () => {
    const wrong = /[ \u00a0][;:?!%»]|[^\s«]»|«[^\u202f]|['“”]/;
    expect(Object.keys(fr).filter((key) => wrong.test(fr[key]!))).toEqual([]);
  });
});

describe("the keys in the code", () => {
  it("are all in the catalogue", () => {
    const keys = [...called(), ...keysIn(walks), ...composed];
    expect(keys.length).toBeGreaterThan(500);
    expect([...new Set(keys)].filter((key) => !(key in en)).sort()).toEqual([]);
  });

  it("that are put together are all listed", () => {
    const groups = new Set(Object.keys(en).map((key) => key.split(".")[0]));
    groups.delete("output"); // `output.${name}` is a tensor of a trace.
    const prefixes = [...code.matchAll(/`(([a-z]+)\.[\w.]*)\$\{/g)].filter((match) => groups.has(match[2]));
    expect([...new Set(prefixes.map((match) => match[1]))].sort()).toEqual(Object.keys(followers).sort());
  });

  it("are the whole catalogue", () => {
    const used = new Set([...composed, ...keysIn(code), ...keysIn(walks)]);
    // The host has the words of models of images and of vectors (clearhead/explorer/answering/values.py).
    expect(Object.keys(en).filter((key) => !used.has(key.split("@")[0]!) && key !== "image.glossary")).toEqual([]);
  });
});
