import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";

const folder = new URL("../../src/draw/", import.meta.url);
const sources = readdirSync(folder).map((name) => readFileSync(new URL(name, folder), "utf8")).join("\n");
const catalogue = JSON.parse(readFileSync(new URL("../../src/i18n/en.draw.json", import.meta.url), "utf8")) as object;

test("the catalogue has every text of the drawings, and no other", () => {
  const used = new Set([...sources.matchAll(/["'](draw\.\w+)["']/g)].map((match) => match[1]!));
  expect([...used].sort()).toEqual(Object.keys(catalogue).sort());
});
