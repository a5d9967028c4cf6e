/** Walks that a reader records. They come back from files and links, which may hold anything. */

import type { RunRequest } from "../core/protocol";
import type { Question, Stop, Walk } from "../core/walk";
import { t } from "../i18n/index.svelte";
import { plainPage, requestA, requestB, type Page } from "./page";
import { decode, encode, fromFragment, toFragment } from "./permalink";

/** Items of a list, and characters of a text or a view. */
const MOST = { list: 200, text: 20_000 };

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

/** With the stop at a place moved to another. */
export function moved(walk: Walk, from: number, to: number): Walk {
  const stops = walk.stops.filter((_, i) => i !== from);
  stops.splice(to, 0, walk.stops[from]!);
  return named({ ...walk, stops });
}

/** The question of what was typed: one choice a line; undefined for nothing. */
export function questionOf(ask: string, lines: string, right: number, because: string): Question | undefined {
  const choices = lines.split("\n").map((line) => line.trim()).filter(Boolean);
  if (!ask.trim() && choices.length === 0) return undefined;
  return { ask, choices, right: Math.max(0, Math.min(right, choices.length - 1)), because };
}

// --- links -----------------------------------------------------------------------------------------------------------

/** The field of a fragment that holds a walk. */
export function fieldOf(walk: Walk | null): string {
  return walk ? `&w=${encode(JSON.stringify(walk))}` : "";
}

/** The passes that a walk goes through, each once. */
export function requestsOf(walk: Walk, { reads }: Page): RunRequest[] {
  const pages = walk.stops.map(({ place }) => (typeof place === "string" && fromFragment(place, { ...reads, target: null })) || plainPage(reads));
  const all = pages.flatMap((page) => [requestA(page), requestB(page)]).filter((one) => one !== null);
  return [...new Map(all.map((one) => [JSON.stringify(one), one])).values()];
}

/** The fragment that begins a walk. */
export function startOf(walk: Walk, page: Page): string {
  const first = walk.stops[0]?.place, reads = (typeof first === "string" && fromFragment(first, page.reads)?.reads) || page.reads;
  return toFragment({ ...plainPage(reads), mode: "learn", walk: walk.name }) + fieldOf(walk);
}

/** The walk of a fragment; null if it has none. Throws an Error of one line for one that is not whole. */
export function walkIn(fragment: string): Walk | null {
  const field = new URLSearchParams(fragment.replace(/^#/, "")).get("w");
  return field === null ? null : walkFrom(() => decode(field));
}

// --- reading ---------------------------------------------------------------------------------------------------------

/** The walk in a text. Throws an Error of one line, which names the field, unless the page has recorded such a walk. */
export function walkFrom(text: () => string): Walk {
  let found: unknown;
  try {
    found = JSON.parse(text());
  } catch {
    refuse("walk", t("own.no_json"));
  }
  const { title, stops } = table(found, "walk", ["name", "title", "stops"]);
  return named({ name: "", title: words(title, "title"), stops: list(stops, "stops").map(stopFrom) });
}

function stopFrom(value: unknown, i: number): Stop {
  const at = `stops[${i}]`, { place, say, question } = table(value, at, ["name", "place", "say", "question"]);
  const link = words(place, `${at}.place`);
  if (!fromFragment(link, plainPage({ text: "", target: null }).reads)) refuse(`${at}.place`, link);
  const stop: Stop = { name: "", place: link, say: words(say, `${at}.say`) };
  return question === undefined ? stop : { ...stop, question: questionFrom(question, `${at}.question`) };
}

function questionFrom(value: unknown, at: string): Question {
  const { ask, choices, right, because } = table(value, at, ["ask", "choices", "right", "because"]);
  const texts = list(choices, `${at}.choices`).map((one, i) => words(one, `${at}.choices[${i}]`));
  if (!Number.isInteger(right) || (right as number) < 0 || (right as number) >= Math.max(1, texts.length)) refuse(`${at}.right`, right);
  return { ask: words(ask, `${at}.ask`), choices: texts, right: right as number, because: words(because, `${at}.because`) };
}

function refuse(at: string, value: unknown): never {
  const shown = String(JSON.stringify(value));
  throw new Error(t("own.refused", { at, value: shown.length > 60 ? `${shown.slice(0, 59)}…` : shown }));
}

function table(value: unknown, at: string, fields: string[]): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) refuse(at, value);
  for (const [name, one] of Object.entries(value as object)) if (!fields.includes(name)) refuse(`${at}.${name}`, one);
  return value as Record<string, unknown>;
}

function list(value: unknown, at: string): unknown[] {
  return Array.isArray(value) && value.length <= MOST.list ? value : refuse(at, value);
}

function words(value: unknown, at: string): string {
  return typeof value === "string" && value.length <= MOST.text ? value : refuse(at, value);
}
