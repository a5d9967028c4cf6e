import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

/** Tests run in node; one of a component starts with `// @vitest-environment jsdom`. */
export default defineConfig({
  plugins: [svelte()],
  // Of Svelte's two runtimes the one that mounts, not the one that renders on a server.
  resolve: { conditions: ["browser"] },
  test: {
    include: ["test/**/*.test.ts"],
    environment: "node",
    setupFiles: ["test/english.ts"],
    // Modules are compiled and loaded once for many files: a quarter less CPU time.
    isolate: false,
    // How long a test takes says how busy the machine is.
    testTimeout: 300_000,
  },
});
