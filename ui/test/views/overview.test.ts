import { describe, expect, it } from "vitest";
import { joined, type Run } from "../../src/parts/kit";
import { piecesOf } from "../../src/state/walk";
import { t } from "../../src/i18n/index.svelte";
import { changes, labelled, layout, widthsOf, yOf } from "../../src/views/overview/layout";
import { choicesOf, curvesIn, headline, headsIn, isMarker, lanesIn, mostRead, nameOf, nameOfShare, quoted, strongest, telling, tells, type Sentence } from "../../src/views/overview/story";
import { along, around } from "../../src/views/overview/paint";
import "../english";

const f32 = (...data: number[]) => ({ shape: [data.length], data: Float32Array.from(data) });
const say = ({ text, names }: Sentence): string => piecesOf(text, names).map((piece) => (typeof piece === "string" ? piece : piece.text)).join("").replaceAll("\u00a0", " ");
const at = (layer: number, head: number, name = "z"): string => `decoder.blocks.${layer}.attn.${name}[h=${head}`;

/** What the prototype measured of SmolLM2 on "The capital of France is". */
const heads = headsIn({
  json: { position: 4, kind: "word", answers: [{ id: 7042, word: "ĠParis", p: 0.772 }], at: [`${at(22, 1)}]`, `${at(23, 4)}]`], decided: { head: 1, moved: 0.67 } },
  tensors: new Map([["moved", f32(0.12, 0.67)], ["p", f32(0.7, 0.14)]]),
});
const curves = curvesIn({ json: { position: 4, kind: "word", curves: [[4, 4, 0.05, 0.9], [4, 3, 0.9, 0.66], [3, 0, 0.5, 0.01]].map(([to, from, weight, moved]) => ({ at: `${at(23, 4, "weights")},t=${to},s=${from}]`, weight: weight!, moved: moved!, p: null })) }, tensors: new Map() });
const alone = { plan: { config: { encoder: null, decoder: {} } } } as unknown as Run, pair = { plan: { config: { encoder: {}, decoder: {} } } } as unknown as Run;
const tokens = ["The", "Ġcapital", "Ġof", "ĠFrance", "Ġis"].map((text, i) => ({ id: i, text, span: [i, i + 1] as [number, number], type: 0 }));
const head = heads.decided!, curve = telling(curves, head.z)!;
const cause = t("overview.without", { of: nameOf(alone, head, "of") }), was = { word: "“Paris”", was: 0.772, now: 0.14, other: null };

describe("the sentence of the overview", () => {
  it.each([
    ["one claim", was, "Without head 4 of block 23, “Paris” falls from 77 % to 14 %."],
    ["the answer gains", { ...was, now: 0.9 }, "Without head 4 of block 23, “Paris” rises from 77 % to 90 %."],
    ["what gains most is told", { ...was, other: { word: "ĠRome", p: 0.5 } }, "Without head 4 of block 23, “Paris” falls from 77 % to 14 %, and “Rome” leads with 50 %."],
    ["what stays behind it", { ...was, now: 0.6, other: { word: "ĠRome", p: 0.3 } }, "Without head 4 of block 23, “Paris” falls from 77 % to 60 %, and “Rome” rises to 30 %."],
    ["next to all or nothing with a sign", { ...was, was: 0.9996, now: 0.0002, other: { word: "ĠRome", p: 0.9991 } }, "Without head 4 of block 23, “Paris” falls from > 99.9 % to < 0.1 %, and “Rome” leads with > 99.9 %."],
    ["what gains nothing is not", { ...was, other: { word: "ĠRome", p: 0.01 } }, "Without head 4 of block 23, “Paris” falls from 77 % to 14 %."],
  ])("%s", (_, outcome, wanted) => expect(say(headline(cause, outcome, {}))).toBe(wanted));

  it("says what a head reads if that is one thing, and all that it reads much", () => {
    expect([tells([curve], head), tells([{ ...curve, moved: 0.1 }], head), tells([{ ...curve, weight: 0.4, moved: 0.4 * head.moved }], head), tells([], head)]).toEqual([true, false, false, false]);
    expect(mostRead(curves, curve).map(({ from }) => from)).toEqual([3]);
  });

  it("names what gains, and a part that moves more than each head", () => {
    const json = { position: 4, kind: "word" as const, answers: heads.answers, at: [`${at(22, 1)}]`] }, part = { at: ["decoder.blocks.0.resid_pre[t=3]"], moved: 0.7, p: 0.1 };
    const seen = headsIn({ json: { ...json, decided: { head: 0, moved: 0.1, part, words: [part], instead: { id: 9, word: "ĠRome", p: 0.5 } } }, tensors: new Map([["moved", f32(0.1)], ["p", f32(0.7)]]) });
    expect([seen.instead?.word, nameOfShare(tokens, seen.part!.tokens), seen.words]).toEqual(["ĠRome", "“France”", [seen.part]]);
    expect(nameOfShare(tokens, [0, 3])).toBe(`${quoted(tokens, 0)} and “France”`);
    expect(nameOfShare([...tokens, { ...tokens[3]!, span: [5, 6] }], [3, 5])).toBe("both “France”s");
    expect(nameOfShare([...tokens, ...[5, 6].map((at) => ({ ...tokens[3]!, span: [at, at + 1] as [number, number] }))], [3, 5, 6])).toBe("every “France”");
    expect(headsIn({ json: { ...json, decided: { head: 0, moved: 0.1, instead: heads.answers[0]! } }, tensors: new Map([["moved", f32(0.1)]]) })).toMatchObject({ part: null, words: [], instead: null });
  });

  it("knows which head of a block moves the answer most, and leaves what was not measured out", () => {
    const one = strongest(heads, { stack: "decoder", layer: 23 })!, none = { ...heads, heads: heads.heads.map((head) => ({ ...head, moved: NaN, p: NaN })) };
    expect([one, strongest(heads, { stack: "encoder", layer: 23 }), strongest(none, { stack: "decoder", layer: 23 })]).toEqual([head, null, null]);
  });

  it.each([
    ["▁L ily ▁has ▁dog s .", "▁L… ▁Lily ▁has ▁dog… ▁dogs ."],
    ["n ' entre _qu ' il", "n… n' entre qu… qu' il"],
    ["det ##ox _is", "det… detox is"],
    ["我们 喜欢 he", "我们 喜欢 he"],
    ["t o b e", "t o b e"],
  ])("names a piece with those of its word before it: %s", (text, wanted) => {
    let end = 0;
    const pieces = text.split(" ").map((piece) => {
      const start = end + Number(/^[▁_]/.test(piece));
      return { id: 0, text: piece.replace("_", ""), span: [start, (end = start + piece.replace(/^[▁_]|^##/, "").length)] as [number, number], type: 0 };
    });
    expect(joined(pieces).map((one) => one.text).join(" ")).toBe(wanted);
    const [first, second] = wanted.split(" ") as [string, string], isOne = first.endsWith("…");
    expect(joined(pieces, [{ tokens: [0, 1] }])[0]!.text).toBe(isOne ? second : first);
    for (const lanes of [[], [{ tokens: [0, 1] }]]) expect(nameOfShare(joined(pieces, lanes), [1, 0])).toBe(isOne ? quoted([{ ...pieces[0]!, text: second }], 0) : `${quoted(pieces, 0)} and ${quoted(pieces, 1)}`);
  });

  it("numbers a word that stands several times, and names the labels of a classifier", () => {
    const same = [...tokens, { ...tokens[3]!, span: [5, 6] as [number, number] }];
    expect([nameOfShare(same, [5]), nameOfShare(same, [3, 4])]).toEqual(["“France” (2)", "“France” (1) and “is”"]);
    expect([["no", "yes"], ["a", "b", "c"], ["0", "1", "2", "3"], ["score"], null].map(choicesOf)).toEqual([" “no” or “yes”", " “a”, “b”, or “c”", " “0”, “1”, …, or “3”", "", ""]);
  });

  it("does not say of an unlikely answer that it leads", () => {
    expect(say(headline(cause, { word: "“dog”", was: 0.999, now: 0.01, other: { word: "fox", p: 0.23 } }, {}))).toContain("nothing takes its place (best: “fox”, 23 %)");
    expect(say(headline(cause, { word: "“dog”", was: 0.3, now: 0.01, other: { word: "fox", p: 0.23 } }, {}))).toContain("“fox” leads with 23 %");
  });

  it("names a head with its stack, and the ends of a text in words", () => {
    const cross = { stack: "decoder", layer: 1, part: "cross", head: 0 } as const;
    expect([nameOf(pair, cross), nameOf(pair, cross, "at"), nameOf(alone, head)]).toEqual(["decoder, block 1, cross-attention, head 0", "decoder block 1, cross-attention head 0", "block 23, self-attention, head 4"]);
    const signs = ["<s>", "[SEP]", "</s>"].map((text) => ({ id: 0, text, span: null, type: 0 }));
    expect(signs.map((_, i) => quoted(signs, i))).toEqual(["the start", "the end", "the end"]);
    expect(["[CLS]", "<|en|>", "4,2", "0.40 s", "class"].map((text) => isMarker([{ id: 0, text, span: null, type: 0 }], 0))).toEqual([true, true, false, false, false]);
    expect(quoted([{ id: 0, text: "4,2", span: null, type: 0 }], 0)).toBe("the outlined part of the picture");
    expect(quoted([{ id: 0, text: "0.40 s", span: null, type: 0 }], 0)).toBe("the sound at 0.40 s");
  });
});

describe("what the picture is made of", () => {
  it("reads the lanes with their tokens", () => {
    const { lanes, streams } = lanesIn({ json: { position: 3, kind: "word", stacks: { decoder: [[0, 2], [1], [3]] } }, tensors: new Map([["decoder", { shape: [2, 3], data: Float32Array.of(0.1, 0.3, 0.9, 0.5, 0.7, NaN) }]]) });
    expect(lanes.decoder).toEqual([{ tokens: [0, 2] }, { tokens: [1] }, { tokens: [3] }]);
    expect([0, 1, 2].map((lane) => streams.decoder!.at(0, lane))).toEqual([0.1, 0.3, 0.9].map(Math.fround));
    expect(streams.decoder!.at(1, 2)).toBeNaN();
  });

  it.each([[1, 1], [5, 2], [24, 30], [24, 80]])("%i lanes of %i blocks fill the room and stay in it", (lanes, blocks) => {
    const [area] = layout([{ lanes, widths: widthsOf(blocks, null) }], 900, 600, 120), { x, top } = area!;
    expect([x[0], Math.round(x.at(-1)!), x.length]).toEqual([120, 844, blocks + 1]);
    expect(top).toBeGreaterThan(30);
    expect(yOf(area!, lanes - 1)).toBeLessThan(540);
  });

  it("puts the decoder at the right of the encoder, with room for its words between", () => {
    const [encoder, decoder] = layout([{ lanes: 7, widths: [1, 1] }, { lanes: 3, widths: [1, 1] }], 900, 600, 120);
    expect(decoder!.x[0]! - encoder!.x.at(-1)!).toBeCloseTo(120);
    expect(yOf(decoder!, 2)).toBeLessThan(yOf(encoder!, 6));
  });

  it("leads a curve round the label of a lane, and leaves others as they are", () => {
    const [encoder, decoder] = layout([{ lanes: 7, widths: [1, 1] }, { lanes: 3, widths: [1, 1] }], 900, 600, 120), to = { x: decoder!.x[1]!, y: yOf(decoder!, 2) };
    const line = { from: { x: encoder!.x.at(-1)!, y: to.y - 8 }, to }, way = { ...line, ...around(line, decoder!) };
    expect([along(way, 0), along(way, 1)]).toEqual([line.from, to]);
    for (let k = 0; k <= 1; k += 0.02) if (Math.abs(along(way, k).x - decoder!.x[0]! + 44) < 30) expect(to.y - along(way, k).y).toBeGreaterThan(15);
    expect(around({ ...line, from: { ...line.from, y: yOf(decoder!, 1.5) }, to: { ...to, y: yOf(decoder!, 1.5) } }, decoder!)).toEqual({});
  });

  it("drops labels that do not fit at regular steps, but never the one that matters", () => {
    const kept = (gap: number, always: number[] = []) => labelled(Array.from({ length: 30 }, (_, i) => i * gap), 26, always).flatMap((is, i) => (is ? [i] : []));
    expect(kept(30)).toHaveLength(30);
    expect(kept(13)).toEqual([0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28]);
    expect(kept(6, [23])).toEqual([0, 5, 10, 15, 23]);
  });

  it("says the lens' word where there is room and it changes, and always at the end", () => {
    expect(changes(["is", ".", ".", "the", "Paris"], [0, 100, 200, 300, 400], () => 60)).toEqual([0, 1, 3, 4]);
    expect(changes(["is", ".", ".", "the", "Paris"], [0, 10, 20, 30, 40], () => 60)).toEqual([4]);
  });
});
