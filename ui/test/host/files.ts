/** Exported files, written by tests/explorer/export_fixtures.py. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import "../../src/entry/tokenizers";
import { BakedHost } from "../../src/host/baked";

export const folder = process.env.CLEARHEAD_FIXTURES ?? "";
export const names = JSON.parse(readFileSync(join(folder, "exports.json"), "utf-8")) as string[];

/** The parts of a file by name. A file in UTF-16 begins with a mark that says so. */
export function fileOf(name: string): Map<string, string> {
  const file = readFileSync(join(folder, `${name}.html`)), html = file.toString(file[0] === 0xff ? "utf16le" : "utf-8");
  const parts = html.matchAll(/<script type="application\/octet-stream" id="clearhead-([^"]*)"[^>]*>([^<]*)/g);
  return new Map([...parts].map(([, id, text]) => [id!, text!]));
}

export function hostOf(parts: Map<string, string>): BakedHost {
  return new BakedHost((name) => parts.get(name) ?? null);
}
