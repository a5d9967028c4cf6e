// @vitest-environment jsdom
import { mount } from "svelte";
import { afterEach, expect, test } from "vitest";
import Bars from "../../src/draw/Bars.svelte";
import Curve from "../../src/draw/Curve.svelte";
import Histogram from "../../src/draw/Histogram.svelte";
import Strip from "../../src/draw/Strip.svelte";
import Vectors from "../../src/draw/Vectors.svelte";
import { clear, page, press, show } from "./mounted";

afterEach(clear);

const texts = (selector: string): string[] =>
  [...page.querySelectorAll(selector)].map((element) => element.textContent!.trim().replace(/\s+/g, " "));

test("bars: one run, then two on one scale", () => {
  const items = [{ label: "rive", a: 0.03, b: 0.29 }, { label: " ", a: 0.5, b: null }];
  show((target) => mount(Bars, { target, props: { label: "Next", items } }));
  expect(texts("tbody tr")).toEqual(["rive 3 %29 %", "␣ 50 %–"]);
  const [a, b] = page.querySelectorAll<HTMLElement>(".bar");
  expect(parseFloat(a!.style.width)).toBeCloseTo(6);
  expect(parseFloat(b!.style.width)).toBeCloseTo(58);
  clear();
  show((target) => mount(Bars, { target, props: { label: "Next", items: [{ label: "rive", a: 0.03 }] } }));
  expect(page.querySelectorAll(".bar").length).toBe(1);
});

test("a strip of many dimensions says that it is pooled, and how", () => {
  const labels = ["a", "b"];
  const wide = { values: new Float32Array(2 * 512).fill(1), rows: 2, cols: 512 };
  show((target) => mount(Strip, { target, props: { ...wide, labels, hue: "Q" } }));
  expect(page.querySelector(".caption")!.textContent).toMatch(/64.*512/);
  clear();
  const small = { values: new Float32Array(16).fill(1), rows: 2, cols: 8 };
  show((target) => mount(Strip, { target, props: { ...small, labels, hue: "V", ends: [".04", ".96"] } }));
  expect(page.querySelector(".caption")).toBeNull();
  expect(texts(".strip > .ends > span")).toEqual([".04", ".96"]);
});

test("a curve that picks is a slider over its marks", async () => {
  const picked: number[] = [];
  const points: [number, number][] = [[0, 3], [50, 2], [100, 1]];
  const onpick = (x: number): void => void picked.push(x);
  show((target) => mount(Curve, { target, props: { label: "Loss", points, marks: [0, 100], mark: 0, onpick } }));
  const slider = page.querySelector<HTMLElement>("[role='slider']")!;
  expect(slider.getAttribute("aria-valuemax")).toBe("100");
  slider.focus();
  await press("ArrowRight");
  await press("End");
  expect(picked).toEqual([100, 100]);
  expect(page.querySelectorAll("tbody tr").length).toBe(3);
});

test("vectors: an arrow for each, their coordinates in a table", () => {
  show((target) => mount(Vectors, {
    target,
    props: {
      label: "As vectors", explained: 0.98,
      vectors: [
        { label: "0.5 v", x: 1, y: 0, role: "sum" }, { label: "0.5 v", x: 0, y: 1, role: "sum" },
        { label: "y", sub: "bank", x: 1, y: 1, role: "y" },
      ],
    },
  }));
  expect(page.querySelectorAll("line").length).toBe(3);
  expect(page.querySelector("polygon")!.getAttribute("points")!.split(" ").length).toBe(4);
  expect(texts("tbody tr")).toEqual(["0.5 v 1.000.00", "0.5 v 0.001.00", "y bank1.001.00"]);
});

test("a histogram counts shares", () => {
  show((target) => mount(Histogram, { target, props: { label: "Values", values: [0, 0, 0, 1, NaN], bins: 2 } }));
  expect(texts("tbody td")).toEqual(["0.750", "0.250"]);
});

