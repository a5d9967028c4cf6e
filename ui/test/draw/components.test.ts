// @vitest-environment jsdom
import { mount } from "svelte";
import { afterEach, expect, test } from "vitest";
import Bars from "../../src/draw/Bars.svelte";
import Curve from "../../src/draw/Curve.svelte";
import Strip from "../../src/draw/Strip.svelte";
import Triangle from "../../src/draw/Triangle.svelte";
import { percent } from "../../src/draw/format";
import { clear, page, press, show } from "./mounted";

afterEach(clear);

const texts = (selector: string): string[] =>
  [...page.querySelectorAll(selector)].map((element) => element.textContent!.trim().replace(/\s+/g, " "));

test("bars: one run, then two on one scale", () => {
  const items = [{ key: 0, label: "rive", value: 0.03, b: 0.29 }, { key: 1, label: "␣", value: 0.5, b: NaN }];
  show((target) => mount(Bars, { target, props: { label: "Next", items, format: percent } }));
  expect(texts("tbody tr")).toEqual(["rive3 %29 %", "␣50 %–"]);
  const [a, b] = page.querySelectorAll<HTMLElement>(".track i");
  expect(parseFloat(a!.style.width)).toBeCloseTo(6);
  expect(parseFloat(b!.style.width)).toBeCloseTo(58);
  clear();
  show((target) => mount(Bars, { target, props: { label: "Next", items: [{ key: 0, label: "rive", value: -0.03 }], room: 100 } }));
  expect([...page.querySelectorAll<HTMLElement>(".track i")].map(({ className, style }) => [className.includes("negative"), style.width])).toEqual([[true, "50px"]]);
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

test("a triangle: an arrow for each vector, their coordinates in a table", () => {
  show((target) => mount(Triangle, {
    target,
    props: {
      label: "Added", width: 300, height: 200,
      vectors: [
        { label: "x", x: 1, y: 0, role: "base" }, { label: "f", x: 1, y: 1, from: [1, 0], role: "part" },
        { label: "x + f", sub: " 1.4", x: 1, y: 1, role: "sum" },
      ],
    },
  }));
  expect([...page.querySelectorAll("line")].map((line) => line.classList[1])).toEqual(["base", "part", "sum"]);
  expect(texts("tbody tr")).toEqual(["x 1.000.00", "f 1.001.00", "x + f 1.41.001.00"]);
});

