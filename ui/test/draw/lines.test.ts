// @vitest-environment jsdom
import { mount } from "svelte";
import { afterEach, expect, test } from "vitest";
import Lines from "../../src/draw/Lines.svelte";
import { bridge, arc, MOST, slotsOf, strandsOf } from "../../src/draw/lines";
import { roving } from "../../src/parts/roving";
import { clear, page, press, show } from "./mounted";

afterEach(clear);

test("words stand one after the other, each with the room that it needs", () => {
  const slots = slotsOf(["a", "deposited", "x".repeat(99)]);
  expect(slots[1]!.left).toBeGreaterThanOrEqual(slots[0]!.left + slots[0]!.width);
  expect(slots[1]!.width).toBeGreaterThan(slots[0]!.width);
  expect(slots[2]!.width).toBe(124);
});

test("the strongest lines are drawn last; weak ones only where they are a word's strongest, or of the chosen word", () => {
  const values = Float32Array.of(0.9, 0.09, 0.01, 0.02, 0.01, 0.012);
  const drawn = (chosen: number): number[][] => strandsOf([{ head: 3, values }], 3, chosen).strands.map(({ query, key, value }) => [query, key, Number(value.toFixed(3))]);
  expect(drawn(0)).toEqual([[0, 2, 0.01], [1, 0, 0.02], [0, 1, 0.09], [0, 0, 0.9]]);
  expect(drawn(1)).toEqual([[1, 1, 0.01], [1, 2, 0.012], [1, 0, 0.02], [0, 1, 0.09], [0, 0, 0.9]]);
});

test("a long text has no more lines than can be drawn, and says so", () => {
  const n = 200, values = new Float32Array(n * n).fill(0.04);
  const { strands, all } = strandsOf([{ head: 0, values }, { head: 1, values }], n, 7);
  expect(strands).toHaveLength(MOST);
  expect(all).toBeGreaterThan(50_000);
  expect(strands.filter(({ query }) => query === 7)).toHaveLength(80);
});

test("curves begin and end at their words", () => {
  expect(arc(10, 50, 100, 30)).toMatch(/^M10 100C.* 50 100$/);
  expect(bridge(10, 50, 0, 80)).toMatch(/^M10 0C.* 50 80$/);
});

function lines(keys: string[] | null) {
  const asked: (number | null)[][] = [];
  const values = Float32Array.of(1, 0, 0, 0.3, 0.7, 0, 0.1, 0.2, 0.7);
  show((target) => mount(Lines, {
    target,
    props: { label: "Weights", queries: ["the", "bank", "pays"], keys, heads: [{ head: 0, values }], query: 1, key: 0, roving, onselect: (...at: (number | null)[]) => asked.push(at) },
  }));
  return asked;
}
const words = (): HTMLButtonElement[] => [...page.querySelectorAll("button")];

test("the words are one Tab stop, say what they look at, and are chosen", async () => {
  const asked = lines(null);
  expect(words().map((one) => one.tabIndex)).toEqual([-1, 0, -1]);
  expect(words()[2]!.getAttribute("aria-label")).toBe("pays looks at pays 70\u00a0%, bank 20\u00a0%, the 10\u00a0%");
  words()[1]!.focus();
  await press("ArrowRight");
  expect(document.activeElement).toBe(words()[2]);
  words()[2]!.click();
  words()[0]!.dispatchEvent(new MouseEvent("click", { bubbles: true, shiftKey: true }));
  expect(asked).toEqual([[2, null], [null, 0]]);
});

test("two sentences stand above each other: the upper one is asked for, the lower one asks", () => {
  const asked = lines(["die", "Bank", "zahlt"]);
  words()[1]!.click();
  words()[5]!.click();
  expect(asked).toEqual([[null, 1], [2, null]]);
  expect(page.querySelectorAll("path.on")).toHaveLength(2);
});
