import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

/** One module and one style sheet for every host: the page loads them, a widget carries them, an exported file
 *  inlines them. So nothing may be split off: no second chunk, no asset beside the style sheet. */
export default defineConfig({
  plugins: [svelte()],
  base: "./",
  build: {
    outDir: "../clearhead/explorer/static",
    emptyOutDir: true,
    target: "es2022",
    cssCodeSplit: false,
    assetsInlineLimit: Infinity,
    modulePreload: false,
    reportCompressedSize: false,
    license: { fileName: "LICENSES.txt" },
    rolldownOptions: {
      input: "src/entry/index.ts",
      preserveEntrySignatures: "strict",
      output: {
        entryFileNames: "explorer.js",
        assetFileNames: "explorer[extname]",
        codeSplitting: false,
      },
    },
  },
});
