// @vitest-environment jsdom
import { mount } from "svelte";
import { afterEach, expect, test } from "vitest";
import Matrix from "../../src/draw/Matrix.svelte";
import { clear, page, press, show } from "./mounted";

afterEach(clear);

type Place = [number, number];

function matrix(n: number, more: object = {}) {
  const selected: Place[] = [];
  const values = Float32Array.from({ length: n * n }, (_, i) => (i % n) / n);
  const labels = Array.from({ length: n }, (_, i) => `t${i}`);
  show((target) => mount(Matrix, {
    target,
    props: {
      values, rows: n, cols: n, rowLabels: labels, colLabels: labels, kind: "share", label: "Weights",
      onselect: (r: number, c: number) => selected.push([r, c]), ...more,
    },
  }));
  return { selected };
}

/** The table of all cells: a picture has another beside it, of those around the chosen cell. */
const table = (): HTMLElement => [...page.querySelectorAll("table")].at(-1)!;
const cells = (): HTMLElement[] => [...table().querySelectorAll<HTMLElement>("td[data-row]")];
const cell = (r: number, c: number): HTMLElement => table().querySelector(`td[data-row="${r}"][data-col="${c}"]`)!;

test("a small matrix is a table of numbers with one tab stop", () => {
  matrix(4, { row: 2, col: 1, sum: true });
  expect(page.querySelector("canvas")).toBeNull();
  expect(cells().map((td) => td.textContent!.trim()).slice(0, 4)).toEqual([".00", ".25", ".50", ".75"]);
  expect(page.querySelectorAll("[tabindex='0']").length).toBe(1);
  expect(cell(2, 1).getAttribute("tabindex")).toBe("0");
  expect(cell(2, 1).classList.contains("selected")).toBe(true);
  expect(page.querySelector("tbody .sum")!.textContent).toBe("1.50");
});

test("closed cells are said to be masked, and are not zeros", () => {
  matrix(3, { closed: (r: number, c: number) => c > r });
  expect(cell(0, 2).textContent).not.toContain("0");
  expect(cell(0, 2).classList.contains("closed")).toBe(true);
  expect(cell(2, 0).textContent!.trim()).toBe(".00");
});

test("arrows, Home, End and Page keys move; Enter picks", async () => {
  const { selected } = matrix(20, { row: 0, col: 0 });
  cell(0, 0).focus();
  await press("ArrowRight");
  await press("ArrowDown");
  expect(document.activeElement).toBe(cell(1, 1));
  await press("End");
  await press("PageDown");
  await press("Enter");
  expect(selected).toEqual([[11, 19]]);
  await press("PageDown");
  await press("PageDown");
  await press("Home");
  expect(document.activeElement).toBe(cell(19, 0));
});

test("a large matrix has pictures and a table of 32 x 32 that follows the keyboard", async () => {
  const { selected } = matrix(200);
  expect(page.querySelectorAll("canvas").length).toBe(1);
  expect(cells().length).toBe(32 * 32);
  expect([table().getAttribute("aria-rowcount"), table().getAttribute("aria-colcount")]).toEqual(["201", "201"]);
  expect(table().querySelector("caption")!.textContent).toMatch(/200 × 200.*largest/s);
  cell(0, 0).focus();
  for (let i = 0; i < 5; i++) await press("PageDown");
  expect(document.activeElement).toBe(cell(50, 0));
  expect(cells().length).toBe(32 * 32);
  await press("Enter");
  expect(selected).toEqual([[50, 0]]);
});

test("beside a picture stand the numbers around the chosen cell, with their names", () => {
  matrix(60, { row: 40, col: 50 });
  const near = page.querySelector("table")!;
  expect(near.closest(".visually-hidden")).toBeNull();
  expect(near.querySelectorAll("td[data-row]").length).toBe(100);
  expect(near.querySelector('td[data-row="40"][data-col="50"]')!.classList.contains("selected")).toBe(true);
  expect(near.textContent).toContain("t40");
});

test("T shows the table of a picture, and hides it", async () => {
  matrix(40);
  const beside = table().parentElement!;
  expect(beside.classList.contains("visually-hidden")).toBe(true);
  cell(0, 0).focus();
  await press("t");
  expect(beside.classList.contains("visually-hidden")).toBe(false);
  await press("t");
  expect(beside.classList.contains("visually-hidden")).toBe(true);
});
