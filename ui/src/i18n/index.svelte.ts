/** The catalogue of texts by key, in the language of the page. The host sends it; the first few are built in. */

import type { Host } from "../core/host";
import { keep, kept } from "../core/kept";
import type { About } from "../core/protocol";
import english from "./en.first.json";

type Catalogue = Record<string, string>;

/** What the page says until the host has sent its language. */
const first: Catalogue = english;
const catalogues = new Map<string, Catalogue>();

const KEPT = "clearhead.language";
const current = $state({ language: "en" });

export function language(): string {
  return current.language;
}

/** What the host sent for a key. */
export function sent(key: string): string | undefined {
  return catalogues.get(current.language)?.[key];
}

/** The text of a key, with `{name}` replaced by its value, in code None for none. Falls back to the built-in English, then to the key. */
export function t(key: string, values: Record<string, string | number | null | undefined> = {}): string {
  const text = sent(key) ?? first[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => (name in values ? String(values[name] ?? "None") : whole));
}

/** A whole number as the language writes it. */
export function integer(n: number): string {
  return n.toLocaleString(current.language);
}

/** The reader's language: the one chosen before, else the browser's, else English. */
export async function chooseLanguage(host: Host, about: About): Promise<void> {
  const wished = [kept(KEPT), ...navigator.languages.map((tag) => tag.split("-")[0] ?? "")];
  try {
    await setLanguage(wished.find((name) => name !== null && about.languages.includes(name)) ?? "en", host);
  } catch {
    // The page that was never built has no texts: the keys stand for them.
  }
}

/** Fetches a language once. If that fails, the language does not change. */
export async function setLanguage(name: string, host: Host): Promise<void> {
  if (!catalogues.has(name)) {
    const { json } = await host.ask("texts", { language: name });
    know(name, json.texts);
  }
  current.language = name;
  keep(KEPT, name);
}

/** The texts of a language. */
export function know(name: string, texts: Catalogue): void {
  catalogues.set(name, texts);
}
