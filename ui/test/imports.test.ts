/** What imports what in src/: downward only, and never in a circle. */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { PLACES } from "../src/state/places";

const SRC = fileURLToPath(new URL("../src", import.meta.url));
/** From the lowest to the highest; files of the top folder stand below the entry. */
const LAYERS = ["core", "engine", "tokenizers", "judge", "i18n", "draw", "host", "state", "parts", "views", "", "exercises", "training", "entry"];
const files = readdirSync(SRC, { recursive: true, encoding: "utf-8" }).filter((name) => /\.(ts|svelte)$/.test(name));

/** By file, what it imports, types included. */
const imports = new Map(files.map((file) => {
  const found = readFileSync(join(SRC, file), "utf-8").matchAll(/\b(?:from|import)\s+"(\.[^"]+)"/g);
  return [file, [...found].map(([, name]) => resolved(file, name!)).filter((to) => /\.(ts|svelte)$/.test(to))];
}));

function resolved(file: string, name: string): string {
  const path = join(SRC, dirname(file), name);
  const found = ["", ".ts", ".svelte.ts", "/index.ts", "/index.svelte.ts"].map((end) => path + end)
    .find((one) => /\.\w+$/.test(one) && existsSync(one));
  if (!found) throw new Error(`${file}: imports ${name}, which is not there`);
  return relative(SRC, found);
}

function layerOf(file: string): number {
  return LAYERS.indexOf(dirname(file).split("/")[0]!.replace(/^\.$/, ""));
}

test("every file stands in a layer, and imports from its own layer or from lower ones", () => {
  expect(files.filter((file) => layerOf(file) < 0)).toEqual([]);
  const upward = [...imports].flatMap(([file, to]) => to.filter((one) => layerOf(one) > layerOf(file)).map((one) => `${file} -> ${one}`));
  expect(upward).toEqual([]);
});

test("no file imports itself by way of others", () => {
  const done = new Set<string>();
  const visit = (file: string, path: readonly string[]): void => {
    if (path.includes(file)) expect.fail([...path.slice(path.indexOf(file)), file].join(" -> "));
    if (done.has(file)) return;
    for (const to of imports.get(file) ?? []) visit(to, [...path, file]);
    done.add(file);
  };
  expect(files.length).toBeGreaterThan(100);
  for (const file of files) visit(file, []);
});

test("every place has a component", () => {
  const names = PLACES.map(({ name }) => `views/${name}/${name.charAt(0).toUpperCase()}${name.slice(1)}.svelte`);
  expect(names.filter((name) => !files.includes(name))).toEqual([]);
});
