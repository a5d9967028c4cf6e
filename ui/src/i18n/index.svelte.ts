/** Every text that a reader sees, by key, in the language of the page. */

type Catalogue = Record<string, string>;

/** `en.json` and `en.draw.json` are one catalogue: the part before the first dot of a file's name is its language. */
const files = import.meta.glob<Catalogue>("./*.json", { eager: true, import: "default" });
const catalogues = new Map<string, Catalogue>();
for (const [path, entries] of Object.entries(files)) {
  const language = path.slice(2).split(".")[0] ?? "en";
  catalogues.set(language, { ...catalogues.get(language), ...entries });
}

export const languages: readonly string[] = [...catalogues.keys()].sort();

const current = $state({ language: initial() });

function initial(): string {
  const wished = typeof navigator === "undefined" ? [] : navigator.languages.map((tag) => tag.split("-")[0] ?? "");
  return wished.find((language) => catalogues.has(language)) ?? "en";
}

export function language(): string {
  return current.language;
}

export function setLanguage(language: string): void {
  if (catalogues.has(language)) current.language = language;
}

/** The text of a key, `{name}` replaced by its value; English where the language lacks it, the key where all do. */
export function t(key: string, values: Record<string, string | number> = {}): string {
  const text = catalogues.get(current.language)?.[key] ?? catalogues.get("en")?.[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => (name in values ? String(values[name]) : whole));
}
