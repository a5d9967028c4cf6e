/** Walks that a reader records: made, kept in a link, and read from what anybody may have written. */

import { beforeAll, describe, expect, test, vi } from "vitest";
import type { Walk } from "../../src/core/walk";
import { Explorer } from "../../src/state/explorer.svelte";
import { EMPTY, fieldOf, linesOf, moved, named, questionOf, startOf, stopHere, walkFrom, walkIn } from "../../src/state/own";
import { plainPage } from "../../src/state/page";
import { walking, type Walking } from "../../src/state/walking.svelte";
import { fileOf, hostOf } from "../host/files";

const page = { ...plainPage({ text: "one two", target: null }), view: "logits" as const, mode: "learn" as const, stop: 3, walk: "word", present: true };
const question = { ask: "Which?", choices: ["this", "that"], right: 1, because: "It is {right}." };
const walk: Walk = named({ ...EMPTY, title: "Two Heads!", stops: [{ ...stopHere(page), say: "ü “{query}”" }, { ...stopHere(page), say: "", question }] });
const read = (value: unknown): Walk => walkFrom(() => JSON.stringify(value));

describe("a recorded walk", () => {
  test("is named by its title, its stops by their order", () => {
    expect(walk.name).toBe("own-two-heads");
    expect(named({ ...walk, title: "言葉" }).name).toBe("own");
    expect(named({ ...walk, title: "a ".repeat(99) }).name).toMatch(/^[a-z][a-z0-9-]{0,60}$/);
    const turned = named({ ...walk, stops: moved(walk.stops, 1, 0) });
    expect(turned.stops.map(({ name, question: asked }) => [name, asked?.right])).toEqual([["stop-1", 1], ["stop-2", undefined]]);
    expect([moved([1, 2, 3], 0, -1), moved([1, 2, 3], 2, 3), moved([1, 2, 3], 0, 1)]).toEqual([[1, 2, 3], [1, 2, 3], [2, 1, 3]]);
    expect(stopHere(page).place).toBe("#v=1&s=one+two&view=logits&query=0");
  });

  test("takes a question from what was typed", () => {
    expect(questionOf("Which?", " this\n\n*that \n", "")).toEqual({ ask: "Which?", choices: ["this", "that"], right: 1, because: "" });
    expect(questionOf("", "\n", "why")).toBeUndefined();
    expect([linesOf(question), linesOf(undefined)]).toEqual(["this\n* that", ""]);
  });

  test("comes back from its file and from its link", () => {
    expect(read(walk)).toEqual(walk);
    expect(walkIn(startOf(walk, page))).toEqual(walk);
    expect(startOf(walk, page)).toMatch(/^#v=1&s=one\+two&mode=learn&query=0&walk=own-two-heads&w=/);
    expect([walkIn("#v=1&s=x"), fieldOf(null)]).toEqual([null, ""]);
  });

  test.each([
    ["walk", null], ["walk", []], ["walk", "x"], ["walk.html", { ...walk, html: "<b>" }], ["walk.title", { ...walk, title: 1 }], ["walk.constructor", { ...walk, constructor: "x" }],
    ["walk.stops", { title: "", stops: {} }], ["walk.stops", { title: "", stops: Array(201).fill(walk.stops[0]) }],
    ["walk.stops[0]", { title: "", stops: [3] }],
    ["walk.stops[0].place", { title: "", stops: [{ place: "javascript:alert(1)", say: "" }] }],
    ["walk.stops[0].place", { title: "", stops: [{ place: { view: "logits" }, say: "" }] }],
    ["walk.stops[0].say", { title: "", stops: [{ place: "#v=1", say: "x".repeat(20_001) }] }],
    ["walk.stops[0].chapter", { title: "", stops: [{ ...walk.stops[0], chapter: "javascript:alert(1)" }] }],
    ["walk.stops[0].question.right", { title: "", stops: [{ ...walk.stops[0], question: { ...question, right: 2 } }] }],
    ["walk.stops[0].question.choices[1]", { title: "", stops: [{ ...walk.stops[0], question: { ...question, choices: ["a", {}] } }] }],
  ])("is refused with the name of the field: %s", (at, value) => {
    expect(() => read(value)).toThrow(t(at));
  });

  test("that is no JSON, or is cut short in a link, is refused", () => {
    expect(() => walkFrom(() => "{")).toThrow(t("walk"));
    expect(() => walkIn(startOf(walk, page).slice(0, -9))).toThrow(t("walk"));
  });
});

/** The line without a catalogue is its key; with one it names the field. */
function t(at: string): RegExp {
  return new RegExp(`^own\\.refused$|: ${at.replace(/[[\].]/g, "\\$&")} is `);
}

describe("on a model", () => {
  vi.stubGlobal("navigator", { languages: ["en"] });

  async function opened(fragment = ""): Promise<Walking> {
    const app = await Explorer.open(hostOf(fileOf("decoder_pre_learned_live")), fragment);
    return walking(app);
  }

  /** That of the file, as a link has it. */
  let text = "";
  beforeAll(async () => {
    text = new URLSearchParams({ s: (await opened()).app.page.reads.text }).toString();
  });

  test("is recorded, undone, and played from a link by somebody else", async () => {
    const way = await opened(), { app } = way;
    way.edit();
    app.go({ view: "attention", step: "scores", head: 1, query: 1, key: 0, form: "lines" });
    way.record({ ...app.own!, stops: [{ ...stopHere(app.page), say: "“{query}” is one of {n}." }] });
    await app.act({ edits: [{ at: `${app.at}.z[h=0]`, do: "zero" }], side: "b" });
    app.go({ view: "logits" });
    way.record({ ...app.own!, title: "Mine", stops: [...app.own!.stops, stopHere(app.page)] });
    way.record({ ...app.own!, stops: [] });
    way.record(null);
    expect(app.own!.stops).toHaveLength(2);

    const other = await opened(app.shared);
    await other.show();
    expect([other.isOn, other.editing, other.walk.name, other.stops.length]).toEqual([true, false, "own-mine", 2]);
    expect(other.app.page).toMatchObject({ view: "attention", step: "scores", head: 1, query: 1, key: 0, form: "lines", edits: [] });
    expect(other.away).toBe(false);
    const told = (await other.told((one) => one))!.pieces.map((piece) => (typeof piece === "string" ? piece : piece.text)).join("");
    expect(told).toBe(`“${other.app.a!.tokens[1]!.text}” is one of ${other.app.a!.tokens.length}.`);
    await other.go(1);
    expect(other.app.page).toMatchObject({ view: "logits", edits: app.page.edits });
    expect([other.away, other.app.b?.request.edits.length, other.changes]).toEqual([false, 1, true]);
    await other.go(0);
    expect([other.app.page.reads.text, other.away, other.app.b]).toEqual([app.page.reads.text, false, null]);
  });

  test("a link whose walk is not whole opens its page, says why, and leaves the reader's own walk alone", async () => {
    const way = await opened(`#v=1&${text}&w=e30`);
    expect([way.app.a === null, way.app.own, way.app.error]).toEqual([false, null, expect.stringMatching(t("walk.title"))]);
    way.edit();
    await way.app.follow(`#v=1&${text}${fieldOf(walk)}`);
    await way.app.follow(`#v=1&${text}&w=%%%`);
    expect(way.app.own).toEqual(walk);
  });

  test("a view for another model is limited to what this one has", async () => {
    const way = await opened();
    way.record({ ...EMPTY, stops: [{ name: "", place: `#v=1&${text}&stack=encoder&layer=99&head=99&query=99&key=99`, say: "" }, { name: "", place: "#v=1&s=a&view=image", say: "" }] });
    await way.play();
    expect(way.stops).toHaveLength(1);
    const { layer, head, stack } = way.app.page, { decoder } = way.app.about.plan.config;
    expect([stack, layer, head, way.away]).toEqual(["decoder", decoder!.n_layers - 1, decoder!.n_heads - 1, false]);
  });
});
