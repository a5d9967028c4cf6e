/** Tests see the page in English, without a host that sends it. */

import { know } from "../src/i18n/index.svelte";

const parts = import.meta.glob<Record<string, string>>("../src/i18n/en*.json", { eager: true, import: "default" });
const places = import.meta.glob<Record<string, Record<string, string>>>("../src/views/*/texts.json", { eager: true, import: "default" });
const walks = Object.values(import.meta.glob("../src/walks/*.json", { eager: true, import: "default" }));
know("en", { ...(Object.assign({}, ...Object.values(parts), ...Object.values(places).map(({ en }) => en)) as Record<string, string>), "walk.all": JSON.stringify(walks) });
