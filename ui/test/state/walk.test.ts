/** The walk of every page on exported files of every kind of model, whose host computes in this process. */

import { describe, expect, test } from "vitest";
import type { Walk } from "../../src/core/walk";
import { wordOf } from "../../src/draw/format";
import { differs, linkTo, rowsOf } from "../../src/parts/walk";
import { Explorer } from "../../src/state/explorer.svelte";
import { fromFragment, toFragment } from "../../src/state/permalink";
import { placeOf } from "../../src/state/places";
import { filled, isBare, piecesOf, placeIn, walks } from "../../src/state/walk";
import { largestOf, walking, type Walking } from "../../src/state/walking.svelte";
import { fileOf, hostOf, names } from "../host/files";

async function opened(name: string, walks: Walk[] = []): Promise<Walking> {
  const host = hostOf(fileOf(name));
  const { json } = await host.ask("about", {});
  const app = new Explorer(host, { ...json, walks });
  await app.refresh();
  expect(app.error).toBeNull();
  return walking(app);
}

const plain = (text: string): string => text;

describe.each(names)("%s", (name) => {
  test("every stop has its place and every number of its sentence", async () => {
    const way = await opened(name), isLive = !name.endsWith("_large");
    await way.enter("word");
    expect(way.stops.length).toBeGreaterThanOrEqual(12);
    expect(new Set(way.stops.map((stop) => stop.name)).size).toBe(way.stops.length);
    for (let i = 0; i < way.stops.length; i++) {
      await way.go(i);
      const { stop, app } = way, told = (await way.told(plain))!;
      expect(app.page.view).toBe(placeIn(stop).view);
      expect(placeOf(app.page.view).when?.(app.about) ?? true, stop.name).toBe(true);
      const left = told.pieces.filter((piece) => typeof piece === "string" && /[{}]/.test(piece));
      expect(left, stop.name).toEqual([]);
      const missing = Object.values(told.reads).filter((read) => read.value === null).map((read) => read.at);
      if (isLive) {
        expect(app.error, stop.name).toBeNull();
        expect(way.away, stop.name).toBe(false);
        expect(missing, stop.name).toEqual([]);
      }
      const asked = await way.asked(plain).catch(() => null);
      if (isLive && stop.question) {
        expect(asked!.choices[asked!.right], stop.name).toBeTruthy();
        expect(asked!.ask, stop.name).not.toMatch(/[{}]/);
        expect(asked!.because.filter((piece) => typeof piece === "string" && /[{}]/.test(piece)), stop.name).toEqual([]);
      }
    }
  });
});

describe("a walk on a decoder", () => {
  const name = "decoder_pre_learned_live";

  test("follows the token whose next word is asked, and says what the model says", async () => {
    const way = await opened(name), { app } = way;
    await way.enter("word");
    const at = (stop: string): number => way.stops.findIndex((one) => one.name === stop);
    await way.go(at("softmax"));
    const { query, key, head, layer, stack } = app.page, last = app.a!.tokens.length - 1;
    expect(query).toBe(last);
    const address = `${stack}.blocks.${layer}.attn.weights[h=${head},t=${query},s=${key}]`;
    const told = (await way.told(plain))!;
    expect(told.reads.share).toMatchObject({ at: address, value: (await app.a!.value(address)).data[0] });
    const row = (await app.a!.value(`${stack}.blocks.${layer}.attn.weights[h=${head},t=${query}]`)).data;
    expect(row[key]).toBe(Math.max(...row));

    await way.go(at("off"));
    const off = (await way.told(plain))!.reads, b = app.b!;
    expect(b.request.edits).toEqual([{ at: `${stack}.blocks.0.attn.z[h=${head}]`, do: "zero" }]);
    const chance = async (run: typeof b): Promise<number> => {
      const logits = Array.from((await run.value(`head.logits[t=${last}]`)).data), plainly = Array.from((await app.a!.value(`head.logits[t=${last}]`)).data);
      const best = plainly.indexOf(Math.max(...plainly)), sum = logits.reduce((all, x) => all + Math.exp(x), 0);
      return Math.exp(logits[best]!) / sum;
    };
    expect(off.before!.value).toBeCloseTo(await chance(app.a!), 5);
    expect(off.after!.value).toBeCloseTo(await chance(b), 5);
    await way.go(at("generation"));
    expect(app.page.edits).toEqual([]);
  });

  test("shows only what it has come to, and everything outside Learn", async () => {
    const way = await opened(name);
    await way.enter("word");
    expect(way.introduced("tokens")).toBe(true);
    expect([way.introduced("attention"), way.introduced("logits"), way.changes]).toEqual([false, false, false]);
    await way.go(way.stops.findIndex((one) => one.name === "scaled"));
    expect([way.introduced("attention", "scores"), way.introduced("attention", "softmax")]).toEqual([true, false]);
    await way.go(0);
    expect(way.introduced("attention", "scaled")).toBe(true);
    way.leave();
    expect([way.introduced("logits"), way.changes, way.isOn]).toEqual([true, true, false]);
  });

  test("knows when the reader looks elsewhere, and the way back", async () => {
    const way = await opened(name);
    await way.enter("word");
    await way.go(4);
    way.app.go({ view: "logits" });
    expect(way.away).toBe(true);
    await way.show();
    expect(way.away).toBe(false);
  });

  test("a walk that came with the model is the first, on its own text", async () => {
    const { app: { about } } = await opened(name);
    const own: Walk = { name: "own", title: "Own", text: about.start.text, stops: [
      { name: "one", place: { view: "tokens", query: 0 }, say: "“{query}” is one of {n}.", chapter: "chapter/" },
      { name: "two", when: { kinds: ["image"] }, place: { view: "image" }, say: "None." },
    ] };
    const way = await opened(name, [own]);
    await way.enter("own");
    expect([way.walk.name, way.stops.map((stop) => stop.name)]).toEqual(["own", ["one"]]);
    const sentence = (await way.told(plain))!.pieces.map((piece) => (typeof piece === "string" ? piece : piece.text)).join("");
    const [first] = way.app.a!.tokens;
    expect(sentence).toBe(`“${first!.text}” is one of ${way.app.a!.tokens.length}.`);
  });

  test("the link of a stop brings it back", async () => {
    const way = await opened(name);
    await way.enter("word");
    await way.go(6);
    const { page } = way.app, again = fromFragment(toFragment(page), page.reads)!;
    expect([again.mode, again.walk, again.stop, again.view, again.head]).toEqual(["learn", "word", 6, page.view, page.head]);
    expect(isBare(again)).toBe(false);
    expect(isBare(fromFragment("#v=1&s=x&mode=learn&walk=word&stop=3", page.reads)!)).toBe(true);
    expect(fromFragment("#v=1&s=x&walk=<b>&stop=-1", page.reads)).toMatchObject({ walk: "", stop: 0 });
    const shown = { form: "lines", heads: [0, 2], present: true } as const;
    expect(fromFragment(toFragment({ ...page, ...shown, heads: [0, 2] }), page.reads)).toMatchObject(shown);
    expect(fromFragment("#v=1&s=x&form=clouds&present=yes", page.reads)).toMatchObject({ form: "map", heads: null, present: false });
  });

  test("how the page is shown is the reader's, not the walk's", async () => {
    const way = await opened(name);
    way.app.go({ form: "steps", present: true });
    await way.enter("word");
    await way.go(6);
    expect(way.app.page).toMatchObject({ form: "steps", present: true, mode: "learn" });
    expect(way.away).toBe(false);
  });
});

describe("a walk on a model without a tokenizer", () => {
  test("begins with the numbers that the reader writes", async () => {
    const way = await opened("numbers");
    await way.enter("word");
    const told = (await way.told(plain))!;
    expect(told.stop.say).toBe("word.numbers");
    expect(told.pieces.flatMap((piece) => (typeof piece === "string" ? [] : piece.text)).slice(0, 2)).toEqual(["1 3 5 7 9 11", "6"]);
    expect([way.unread, way.away]).toEqual([false, false]);
  });

  test("says that words cannot be read, and stays with what could", async () => {
    const way = await opened("numbers"), { app } = way, { reads } = app.page;
    await way.enter("word");
    await way.go(5);
    await app.act({ reads: { ...reads, text: "Once upon a time" } });
    expect([app.error === null, app.refused?.reads.text, way.unread, app.page.reads.text]).toEqual([false, "Once upon a time", false, reads.text]);
    await way.read(way.readable!);
    expect([way.unread, way.away, app.error, app.page.reads.text]).toEqual([false, false, null, "1 3 5 7 9 11"]);
    expect((await way.told(plain))!.stop.name).toBe("scaled");
  });

  test("a page that begins with words knows numbers to read", async () => {
    const { app: { host, about } } = await opened("numbers");
    const app = new Explorer(host, { ...about, start: { ...about.start, text: "Once upon a time" } }), way = walking(app);
    await app.refresh();
    await way.enter("word");
    expect([app.a, way.unread, way.placement]).toEqual([null, true, null]);
    await way.read(way.readable!);
    expect([way.unread, way.away, app.page.view]).toEqual([false, false, "tokens"]);
  });
});

describe("the parts of a stop", () => {
  test("templates", () => {
    expect(filled("{at}.z[h={head}] {other}", { at: "a", head: "2" })).toBe("a.z[h=2] {other}");
    expect(piecesOf("“{query}” is {n}.", { query: "{n}", n: "3" })).toEqual(["“", { name: "query", text: "{n}" }, "” is ", { name: "n", text: "3" }, "."]);
    expect(["▁two", "▁", "two"].map(wordOf)).toEqual(["two", "▁", "two"]);
  });

  test("links lead to the web or beside the page only", () => {
    expect(["../attention/", "attention", "https://example.org/a", undefined, "javascript:alert(1)", " data:text/html,x"].map(linkTo))
      .toEqual(["../attention/", null, "https://example.org/a", null, null, null]);
  });

  test("printed numbers differ where their rounding does not explain it", () => {
    const two = { decimals: 2 } as never, exact = { decimals: null } as never;
    expect([differs(0.28, 0.284, two), differs(0.28, 0.286, two), differs(5, 5, exact), differs(5, 5.1, exact), differs(undefined, 1, two)])
      .toEqual([false, true, false, true, false]);
    expect(rowsOf({ shape: [4], data: Float32Array.of(1, 2, 3, 4) }, [[0, 0], [0, 0]])).toEqual([[1, 2], [3, 4]]);
    expect(rowsOf({ shape: [3], data: Float32Array.of(1, 2, 3) }, [[0, 0]])).toBeNull();
  });

  test("of many keys the largest is among the choices, and closed ones are not", () => {
    const shares = Array.from({ length: 40 }, (_, i) => (i > 30 ? 0 : i === 17 ? 0.5 : 0.01));
    const { choices, right } = largestOf(shares, shares.map((_, i) => `k${i}`));
    expect(choices).toHaveLength(5);
    expect(choices[right]).toBe("k17");
    expect(largestOf([0, 1], ["a", "b"])).toEqual({ choices: ["b"], right: 0 });
  });

  test("every walk is named once, and begins at its first stop", () => {
    expect(walks().length).toBeGreaterThan(0);
    expect(new Set(walks().map((walk) => walk.name)).size).toBe(walks().length);
  });
});
