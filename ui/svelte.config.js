import { vitePreprocess } from "@sveltejs/vite-plugin-svelte";

/** @type {import("@sveltejs/vite-plugin-svelte").SvelteConfig} */
export default {
  preprocess: vitePreprocess(),
  // The server's content security policy allows no inline styles: all of them go to explorer.css.
  compilerOptions: { runes: true, css: "external" },
};
