/** The page's state in the fragment of its URL, which no server ever sees.
 *
 * Fields that people read and may change by hand are plain; the rest is one base64url field of JSON.
 */

import type { Edit } from "../core/protocol";
import { FORMS, PARTS, plainPage, ZOOMS, type Page, type Reads } from "./page";
import { PLACES, STEPS } from "./places";

const VERSION = "1";
const PLAIN = ["zoom", "step", "form", "stack", "part", "side", "mode"] as const;
const COUNTS = ["layer", "head", "query", "key", "stop", "moment", "set", "feature"] as const;
/** What a link says of where to look in the model. */
export const CELL = ["query", "key"];
const SELECTED = ["stack", "part", "layer", "head", ...CELL];
const NAME = /^[a-z][a-z0-9-]{0,60}$/;
const ALLOWED: Record<(typeof PLAIN)[number], readonly string[]> = {
  zoom: ZOOMS,
  step: STEPS,
  form: FORMS,
  stack: ["encoder", "decoder"],
  part: PARTS,
  side: ["a", "b", "diff"],
  mode: ["learn", "explore", "research"],
};

export function toFragment(page: Page): string {
  const plain = plainPage(page.reads);
  const fields = new URLSearchParams({ v: VERSION, s: page.reads.text });
  if (page.reads.target !== null) fields.set("t", page.reads.target);
  for (const name of ["view", ...PLAIN, ...COUNTS] as const) if (page[name] !== plain[name]) fields.set(name, String(page[name]));
  if (page.view !== "overview" && isPlain(fields, CELL)) fields.set("query", "0");
  if (page.walk) fields.set("walk", page.walk);
  if (page.present) fields.set("present", "1");
  const { dim, position, other, edits, change, temperature, heads } = page;
  const { image = null, step = null } = page.reads;
  const rest = { dim, position, other, edits, change, temperature, heads, image, step };
  const empty = { dim: null, position: null, other: null, edits: [], change: {}, temperature: 1, heads: null, image: null, step: null };
  if (JSON.stringify(rest) !== JSON.stringify(empty)) fields.set("e", encode(JSON.stringify(rest)));
  return `#${fields.toString()}`;
}

/** Whether a fragment leaves open where to look in the model, or in a head. */
export function isPlain(fragment: string | URLSearchParams, names = SELECTED): boolean {
  const fields = new URLSearchParams(`${fragment}`.replace(/^#/, ""));
  return !names.some((name) => fields.has(name));
}

/** The page of a fragment; null for no link, or one of another version. Ignores fields that make no sense. */
export function fromFragment(fragment: string, start: Reads): Page | null {
  const fields = new URLSearchParams(fragment.replace(/^#/, ""));
  if (fields.get("v") !== VERSION) return null;
  const page = plainPage({ ...start, text: fields.get("s") ?? start.text, target: fields.get("t") ?? null });
  const view = PLACES.find(({ name }) => name === fields.get("view"));
  if (view) page.view = view.name;
  for (const name of PLAIN) {
    const value = fields.get(name);
    if (value !== null && ALLOWED[name].includes(value)) Object.assign(page, { [name]: value });
  }
  if (page.part === "cross") page.stack = "decoder";
  for (const name of COUNTS) {
    const value = Number(fields.get(name) ?? NaN);
    if (Number.isInteger(value) && value >= 0) page[name] = value;
  }
  const walk = fields.get("walk") ?? "";
  const stop = fields.get("stop") ?? "";
  if (NAME.test(walk)) page.walk = walk;
  if (NAME.test(stop)) page.stop = stop;
  page.present = fields.get("present") === "1";
  try {
    const rest = JSON.parse(decode(fields.get("e") ?? "")) as Partial<Page> & { image?: string | null };
    if (Array.isArray(rest.edits)) page.edits = rest.edits.filter(isEdit);
    if (rest.change && typeof rest.change === "object") page.change = rest.change;
    if (rest.other && typeof rest.other.text === "string") page.other = rest.other;
    if (typeof rest.temperature === "number" && rest.temperature > 0) page.temperature = rest.temperature;
    if (Array.isArray(rest.heads)) page.heads = rest.heads.filter(isCount);
    if (isCount(rest.position)) page.position = rest.position;
    if (isCount(rest.dim)) page.dim = rest.dim;
    if (typeof rest.image === "string") page.reads.image = rest.image;
    if (isCount(rest.step)) page.reads.step = rest.step;
  } catch {
    // The field is missing or cut short; the rest of the link still says where to look.
  }
  return page;
}

function isEdit(value: unknown): value is Edit {
  const { at, do: what } = (value ?? {}) as Partial<Edit>;
  return typeof at === "string" && typeof what === "string";
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 0;
}

export function encode(text: string): string {
  const bytes = Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("");
  return btoa(bytes).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

export function decode(text: string): string {
  const bytes = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(bytes, (char) => char.charCodeAt(0)));
}
