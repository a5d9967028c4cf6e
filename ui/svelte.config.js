import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { vitePreprocess } from "@sveltejs/vite-plugin-svelte";

const folder = fileURLToPath(new URL("src/", import.meta.url));
const components = readdirSync(folder, { recursive: true }).filter((file) => file.endsWith(".svelte")).map((file) => file.replaceAll("\\", "/")).sort();

/** The class of a component's own styles: as short as can be, since most elements of the page carry one. */
function cssHash({ filename, hash, css }) {
  const place = components.findIndex((file) => filename.replaceAll("\\", "/").endsWith(`src/${file}`));
  return place < 0 ? `svelte-${hash(css)}` : `s${place}`;
}

/** Spaces beside what begins or ends a line are not seen: each would be a text of its own in the page. */
const BLOCKS = "(?:p|div|section|h[1-6]|ul|ol|li|dl|table|form|figure|figcaption|details|aside|header|nav|main|dt|dd|summary|option)";
const EDGES = new RegExp(`(</${BLOCKS}>)\\s+|\\s+(?=<${BLOCKS}[\\s>])`, "g");
const unspaced = { markup: ({ content }) => ({ code: content.replace(/<(script|style)[\s>][^]*?<\/\1>|[^]+?(?=<(?:script|style)[\s>]|$)/g, (part, code) => (code ? part : part.replace(EDGES, "$1"))) }) };

/** @type {import("@sveltejs/vite-plugin-svelte").SvelteConfig} */
export default {
  preprocess: [vitePreprocess(), unspaced],
  // The server's content security policy allows no inline styles: all of them go to explorer.css.
  compilerOptions: { runes: true, discloseVersion: false, css: "external", fragments: "tree", cssHash },
};
