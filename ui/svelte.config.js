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

/** @type {import("@sveltejs/vite-plugin-svelte").SvelteConfig} */
export default {
  preprocess: vitePreprocess(),
  // The server's content security policy allows no inline styles: all of them go to explorer.css.
  compilerOptions: { runes: true, discloseVersion: false, css: "external", fragments: "tree", cssHash },
};
