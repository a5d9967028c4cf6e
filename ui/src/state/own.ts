/** Walks that a reader records. They come back from files and links, which may hold anything. */

import type { RunRequest } from "../core/protocol";
import type { Question, Stop, Walk } from "../core/walk";
import { t } from "../i18n/index.svelte";
import { NOTHING, plainPage, requestA, requestB, type Page } from "./page";
import { decode, encode, fromFragment, toFragment } from "./permalink";

/** Items of a list, and characters of a text or a view. */
const MOST_ITEMS = 200, MOST_CHARACTERS = 20_000;
/** What a recorded walk is made of. */
const LIKE = { name: "", title: "", stops: [{ name: "", place: "", say: "", question: { ask: "", choices: [""], right: 0, because: "" } }] };
const OPTIONAL = ["name", "question"];

/** A walk without stops. */
export const EMPTY: Walk = { name: "own", title: "", stops: [] };

/** The stop that looks where the page does. */
export function stopHere(page: Page): Stop {
  return { name: "", place: toFragment({ ...page, mode: "explore", walk: "", stop: 0, present: false }), say: "" };
}

/** With its stops named by their order, and the walk itself by its title. */
export function named({ title, stops }: Walk): Walk {
  const words = title.toLowerCase().match(/[a-z0-9]+/g) ?? [];
  return { name: ["own", ...words].join("-").slice(0, 60), title, stops: stops.map((stop, i) => ({ ...stop, name: `stop-${i + 1}` })) };
}

/** With the one at a place moved to another; beyond the first or the last, nothing moves. */
export function moved<T>(list: readonly T[], from: number, to: number): T[] {
  const made = list.filter((_, i) => i !== from);
  made.splice(Math.max(0, to), 0, list[from]!);
  return made;
}

/** The question of what was typed: one choice a line, a * before the right one; undefined for nothing. */
export function questionOf(ask: string, lines: string, because: string): Question | undefined {
  const typed = lines.split("\n").map((line) => line.trim()).filter(Boolean), choices = typed.map((line) => line.replace(/^\*\s*/, ""));
  return ask || typed.length ? { ask, choices, right: Math.max(0, typed.findIndex((line) => line.startsWith("*"))), because } : undefined;
}

/** The choices as they are typed. */
export function linesOf(question: Question | undefined): string {
  const choices = (question?.choices ?? []) as string[];
  return choices.map((choice, i) => (i === question!.right ? `* ${choice}` : choice)).join("\n");
}

// --- links -----------------------------------------------------------------------------------------------------------

/** The field of a fragment that holds a walk. */
export function fieldOf(walk: Walk | null): string {
  return walk ? `&w=${encode(JSON.stringify(walk))}` : "";
}

/** The passes that a walk goes through, each once. */
export function requestsOf(walk: Walk, page: Page): RunRequest[] {
  const all = walk.stops.map((stop) => pageOf(stop, page)).flatMap((one) => [requestA(one), requestB(one)]).filter((one) => one !== null);
  return [...new Map(all.map((one) => [JSON.stringify(one), one])).values()];
}

/** The fragment that begins a walk. */
export function startOf(walk: Walk, page: Page): string {
  return toFragment({ ...plainPage(pageOf(walk.stops[0]!, page).reads), mode: "learn", walk: walk.name }) + fieldOf(walk);
}

/** The page at a recorded stop; `now` has the image that a link leaves out. */
function pageOf({ place }: Stop, now: Page): Page {
  return fromFragment(place as string, now.reads) ?? now;
}

/** The walk of a fragment; null if it has none. Throws an Error of one line for one that is not whole. */
export function walkIn(fragment: string): Walk | null {
  const field = new URLSearchParams(fragment.replace(/^#/, "")).get("w");
  return field === null ? null : walkFrom(() => decode(field));
}

// --- reading ---------------------------------------------------------------------------------------------------------

/** The walk in a text. Throws an Error of one line, which names the field, unless the page can have recorded it. */
export function walkFrom(text: () => string): Walk {
  let found: unknown;
  try {
    found = JSON.parse(text());
  } catch {
    refuse("walk", "?");
  }
  fits(found, LIKE, "walk");
  const walk = found as Walk;
  walk.stops.forEach(({ place, question }, i) => {
    if (!fromFragment(place as string, NOTHING)) refuse(`walk.stops[${i}].place`, place);
    if (question && !((question.right as number) in (question.choices as string[]))) refuse(`walk.stops[${i}].question.right`, question.right);
  });
  return named(walk);
}

/** Refuses a value that has another form than the example. */
function fits(value: unknown, like: unknown, at: string): void {
  const most = typeof value === "string" ? MOST_CHARACTERS : MOST_ITEMS;
  if (value === null || typeof value !== typeof like || Array.isArray(value) !== Array.isArray(like) || (value as string).length > most) refuse(at, value);
  if (Array.isArray(value)) value.forEach((one, i) => fits(one, (like as unknown[])[0], `${at}[${i}]`));
  else if (typeof value === "object") {
    const fields = new Map(Object.entries(value as object)), known = new Map(Object.entries(like as object));
    for (const name of new Set([...known.keys(), ...fields.keys()])) {
      if (fields.has(name) || !OPTIONAL.includes(name)) fits(fields.get(name), known.get(name), `${at}.${name}`);
    }
  }
}

function refuse(at: string, value: unknown): never {
  throw new Error(t("own.refused", { at, value: String(JSON.stringify(value)).slice(0, 60) }));
}
