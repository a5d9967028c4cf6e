import { readdirSync, readFileSync } from "node:fs";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { build, defineConfig, type BuildOptions, type Plugin, type Rolldown } from "vite";

/** texts.json: every language, with the texts that stand in the folder of a place, the Python code of places, and the walks that
 *  every page has; English
 *  also with the examples of places that a model may not have. The
 *  module has the little that the page says before it has read it. */
function texts(): Plugin {
  const folder = new URL("src/i18n/", import.meta.url);
  const read = <T = Record<string, string>>(name: string): T => JSON.parse(readFileSync(new URL(name, folder), "utf8"));
  const walks = JSON.stringify(readdirSync(new URL("../walks/", folder)).map((name) => read(`../walks/${name}`)));
  const places = readdirSync(new URL("../views/", folder), { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith("texts.json"));
  return {
    name: "texts",
    generateBundle() {
      const languages: Record<string, Record<string, string>> = {};
      for (const name of readdirSync(folder).filter((file) => file.endsWith(".json"))) {
        const language = name.split(".")[0]!;
        languages[language] = { ...languages[language], ...read(name), ...read("../views/python.json"), "walk.all": walks };
      }
      for (const name of places) {
        for (const [language, own] of Object.entries(read<typeof languages>(`../views/${name}`))) Object.assign(languages[language]!, own);
      }
      for (const name of readdirSync(new URL("../examples/", folder))) languages["en"]![`example.${name.split(".")[0]}`] = readFileSync(new URL(`../examples/${name}`, folder), "utf8");
      this.emitFile({ type: "asset", fileName: "texts.json", source: JSON.stringify(languages) });
    },
  };
}

/** Svelte's code for taking over a server's HTML, without which a page that is only ever mounted works: it and every check for it go. */
function mountedOnly(): Plugin {
  const FUNCTIONS = ["set_hydrating", "set_hydrate_node", "hydrate_next", "reset", "hydrate_template", "next", "skip_nodes", "read_hydration_instruction"];
  return {
    name: "mounted-only",
    apply: "build",
    enforce: "pre",
    transform(_, id) {
      if (!id.endsWith("svelte/src/internal/client/dom/hydration.js")) return;
      const functions = FUNCTIONS.map((name) => `export function ${name}() {}`);
      return { code: ["export const hydrating = false, hydrate_node = undefined;", ...functions].join("\n"), map: null };
    },
  };
}

/** `<svelte:boundary>` without what waits and without a server's HTML: its children, or after an error its `failed`. */
function shortBoundary(): Plugin {
  return {
    name: "short-boundary",
    apply: "build",
    enforce: "pre",
    transform(_, id) {
      if (!id.endsWith("svelte/src/internal/client/dom/blocks/boundary.js")) return;
      return { code: `
        import { BOUNDARY_EFFECT, EFFECT_PRESERVED, EFFECT_TRANSPARENT } from "#client/constants";
        import { block, branch, destroy_effect } from "../../reactivity/effects.js";
        import { set, source } from "../../reactivity/sources.js";
        import { active_effect, get } from "../../runtime.js";
        import { queue_micro_task } from "../task.js";
        export function boundary(node, props, children) {
          const failure = source(null), reset = () => set(failure, null);
          const own = { error(error) {
            if (!props.failed) throw error;
            queue_micro_task(() => set(failure, [error]));
            const { onerror } = props;
            onerror?.(error, reset);
          } };
          let shown = null;
          block(() => {
            const failed = get(failure);
            if (shown) destroy_effect(shown);
            shown = null;
            try {
              shown = branch(() => {
                if (failed) return props.failed(node, () => failed[0], () => reset);
                active_effect.b = own;
                active_effect.f |= BOUNDARY_EFFECT;
                children(node);
              });
            } catch (error) { own.error(error); }
          }, EFFECT_TRANSPARENT | EFFECT_PRESERVED);
        }
        export function pending() {}`, map: null };
    },
  };
}

/** Svelte's copies of a state, which here is made of lists and plain objects alone, and its errors, which name a mistake of ours: the
 *  build for development says which, this one only where. */
function plainStates(): Plugin {
  return {
    name: "plain-states",
    apply: "build",
    enforce: "pre",
    transform(code, id) {
      if (id.endsWith("svelte/src/internal/shared/clone.js")) {
        return { code: `export function snapshot(value) {
          if (Array.isArray(value)) return value.map((one) => snapshot(one));
          if (value?.constructor !== Object) return value;
          return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, snapshot(one)]));
        }`, map: null };
      }
      if (!/svelte\/src\/internal\/(client|shared)\/errors\.js$/.test(id)) return;
      const names = [...code.matchAll(/^export function (\w+)/gm)].map(([, name]) => `fail as ${name}`);
      const own = id.includes("client") ? 'export * from "../shared/errors.js"; import { fail } from "../shared/errors.js";' : 'export function fail() { throw Error("Svelte"); }';
      return { code: `${own} export { ${names.join(", ")} };`, map: null };
    },
  };
}

/** Svelte's code for `await` in components, components without runes, forks of the state, eager states, signals that abort,
 *  transitions, formulas in MathML, pages in XML, styles that another style of the element overrides, and lists of several choices, which none has: what serves them goes. */
function withoutUnused(): Plugin {
  const GONE: Record<string, [string, string][]> = {
    "flags/index.js": [["export let ", "export const "], ["_mode_flag = true;", "_mode_flag;"], ["\tasync_mode_flag = false;", ""]],
    "client/reactivity/async.js": [["if (async.length === 0 && pending.length === 0)", "if (true)"], ["is_runes()", "true"]],
    "client/reactivity/batch.js": [["this.is_fork", "false"], ["!batch.is_fork", "true"], ["batch.is_fork)", "false)"], ["this.#is_deferred()", "false"], ["effect.b?.is_pending", "false"], ["effect.ac === null", "true"], ["this.#commit();", ""], ["this.#find_earlier_batch()", "null"], ["this.#defer_effects(render_effects);", ""], ["this.#defer_effects(effects);", ""], ["earlier_batch.#merge(this);", ""], [" || !batch.#intersects(this)", ""],
      ["this.discard();", "this.#unlink();"], ["this.#deferred?.resolve();", ""], ["this.#pending === 0", "true"], ["this.#unskipped_branches.delete(effect);", ""], ["this.#unskipped_branches.add(effect);", ""],
      ...["async_deriveds = new Map", "#discard_callbacks = new Set", "#blocking_pending = new Map", "#unskipped_branches = new Set"].map((field): [string, string] => [`\t${field}();\n`, ""]),
      ...["#deferred = null", "#new_effects = []", "#decrement_queued = false", "#pending = 0"].map((field): [string, string] => [`\t${field};\n`, ""])],
    "client/reactivity/deriveds.js": [["!current_batch?.is_fork", "true"], ["current_batch?.is_fork", "false"], ["e.teardown || e.ac", "e.teardown"], ["e.ac !== null", "false"], ["ac: null", ""], ["w.derived_inert();", ""]],
    "client/reactivity/sources.js": [["!batch.is_fork && eager_effects.size > 0 && !eager_effects_deferred", "false"], ["eager_effects.add(/** @type {Effect} */ (reaction));", ""], ["is_runes()", "true"]],
    "client/runtime.js": [["current_batch?.is_fork", "false"], ["is_runes()", "true"], ["reaction.ac !== null", "false"], ["derived.ac !== null", "false"]],
    "client/constants.js": [["new (class StaleReactionError extends Error {\n\tname = 'StaleReactionError';\n\tmessage = 'The reaction that called `getAbortSignal()` was re-run or destroyed';\n})()", "null"], ["!!globalThis.document?.contentType &&", "false &&"]],
    "client/dom/template.js": [["name === 'math' ? NAMESPACE_MATHML : ", ""]],
    "client/dom/elements/actions.js": [["deep_read_state(value);", ""]],
    "client/dom/blocks/key.js": [["is_runes()", "true"]],
    "utils.js": [["\t...DOM_BOOLEAN_ATTRIBUTES,\n", ""]],
    "client/dom/blocks/branches.js": [["var defer = should_defer_append();", "const defer = false;"]],
    "client/dom/blocks/each.js": [["var defer = should_defer_append();", "const defer = false;"], ["if (group) {", "if (false) {"], ["remaining -= 1;", ""], ["remaining === 0", "true"], ["transitions.length === 0 && ", ""], ["state.outrogroups !== null", "false"], [", outrogroups: null", ""], ["(flags & EACH_IS_ANIMATED) !== 0", "false"]],
    "client/reactivity/effects.js": [["effect.nodes && effect.nodes.t", "null"], ["const controller = effect.ac;", ""], ["controller !== null", "false"], ["transitions !== null", "false"], ["var transitions = [];", ""], ["var remaining = transitions.length;", ""], ["remaining > 0", "false"], ["if (t !== null)", "if (false)"], ["pause_children(effect, transitions, true)", "pause_children(effect)"], ["pause_children(child, transitions, transparent ? local : false)", "pause_children(child)"], ["resume_children(child, transparent ? local : false)", "resume_children(child)"], ["ac: null", ""], ["effect.ac =", ""], ["current_batch?.register_created_effect(effect);", ""]],
    "client/dom/elements/bindings/select.js": [["select.multiple", "false"], ["'__defaultValue' in select", "false"], ["entries.every(is_selectedcontent_mutation)", "false"]],
    "client/dom/elements/attributes.js": [["attribute === 'loading'", "false"]],
    "shared/attributes.js": [["if (value) {\n\t\t\t// strip", "if (value) new_style = ` ${value};`;\n\t\tif (false) {\n\t\t\t// strip"]],
  };
  /** Methods of a batch that only such code calls, and what guards a state against changes that none makes. */
  const CUT: Record<string, string[]> = { "client/proxy.js": ["defineProperty", "setPrototypeOf"], "client/reactivity/batch.js": ["activate", "deactivate", "discard", "register_created_effect", "#is_skipped", "#is_deferred", "#commit", "#find_earlier_batch", "#intersects", "#merge", "#defer_effects", "increment", "decrement", "settled", "transfer_reactions", "oncommit", "ondiscard"] };
  return {
    name: "without-unused",
    apply: "build",
    enforce: "pre",
    transform(code, id) {
      const file = id.split(/\/svelte\/src\/(?:internal\/)?/)[1] ?? "";
      let left = code;
      for (const [unused, not] of GONE[file] ?? []) {
        if (!left.includes(unused)) throw new Error(`${id}: expected "${unused}"; adapt without-unused to this svelte`);
        left = left.replaceAll(unused, not);
      }
      for (const name of CUT[file] ?? []) {
        const method = new RegExp(`\\n(\\t+)${name}\\(.*\\) \\{[^]*?\\n\\1\\},?(?=\\n)`);
        if (!method.test(left)) throw new Error(`${id}: expected a method ${name}; adapt without-unused to this svelte`);
        left = left.replace(method, "");
      }
      return file in GONE || file in CUT ? { code: left, map: null } : undefined;
    },
  };
}

/** Scripts that only some exported files hold beside file.js: webgpu.js for the worker of a large model, tokenizers.js where the
 *  page reads any text. */
function besides(): Plugin {
  return {
    name: "besides",
    apply: "build",
    async generateBundle() {
      for (const name of ["webgpu", "tokenizers"]) {
        const lib = { entry: `src/entry/${name}.ts`, formats: ["iife" as const], name };
        const made = await build({ configFile: false, logLevel: "warn", publicDir: false, build: { lib, write: false, target: "es2022", reportCompressedSize: false } });
        for (const { output: [script] } of made as Rolldown.RolldownOutput[]) this.emitFile({ type: "asset", fileName: `${name}.js`, source: script.code });
      }
    },
  };
}

/** What only an exported file has: matrices in a few bits, which the server reads itself. */
const withoutFiles: Plugin = { name: "without-files", enforce: "pre", load: (id) => (id.endsWith("/rounded/rounded.ts") ? "export class Rounded {}" : null) };

/** Of the components in the folders of places those that the places are. A file has none of the places that need Python; its style sheet is that of the page. */
const PLACES = readdirSync(new URL("src/views/", import.meta.url), { withFileTypes: true }).filter((one) => one.isDirectory()).map(({ name }) => name), PYTHON = ["examples", "steering", "difference"];
const places = (names: string[]): Plugin => {
  const files = JSON.stringify(names.map((name) => `./${name}/${name.charAt(0).toUpperCase()}${name.slice(1)}.svelte`));
  return { name: "places", enforce: "pre", transform: (code, id) => (id.endsWith("/views/index.ts") ? { code: code.replace('"./*/*.svelte"', files), map: null } : null) };
};
const withoutPython = places(PLACES.filter((name) => !PYTHON.includes(name)));

/** explorer.js: what a server's page and a notebook load. It leaves out what answers in a file. exercises.js and training.js: the only
 *  script of a page of exercises, and of one in which a model learns, each with a style sheet of its own. */
function served(): Plugin {
  return {
    name: "served",
    apply: "build",
    enforce: "post",
    async generateBundle(_, bundle) {
      for (const [name, entry] of [["explorer", "index"], ["exercises", "exercises"], ["training", "training"]] as const) {
        const made = await build({ configFile: false, logLevel: "warn", publicDir: false, plugins: [...plugins(), ...(name === "explorer" ? [withoutFiles, places(PLACES)] : [withoutPython])], build: { ...options(`src/entry/${entry}.ts`), write: false } });
        const { output: [script, ...assets] } = made as Rolldown.RolldownOutput, style = assets.find((one) => one.type === "asset" && one.fileName.endsWith(".css"));
        this.emitFile({ type: "asset", fileName: `${name}.js`, source: script.code });
        const sheet = bundle[`${name}.css`];
        if (style?.type !== "asset") continue;
        if (sheet?.type === "asset") sheet.source = style.source;
        else this.emitFile({ type: "asset", fileName: `${name}.css`, source: style.source });
      }
    },
  };
}

/** Without the spaces between lines of a template that stand beside a block: no page shows them, and each is a node. */
function withoutSpaces(): Plugin {
  const tag = "(?:p|div|section|ul|ol|li|dl|dt|dd|h[1-6]|header|nav|aside|main|form|table|thead|tbody|tr|td|th|details|summary|pre|g|rect|line|path|circle|polyline|option)\\b";
  const after = new RegExp(`(</${tag}>)\\s*\\n\\s*(?=[<{])`, "g"), before = new RegExp(`([>}])\\s*\\n\\s*(?=<${tag})`, "g");
  return {
    name: "without-spaces",
    apply: "build",
    enforce: "pre",
    transform: (code, id) => (id.endsWith(".svelte") ? { code: code.replace(/(<script[^]*?<\/script>)|(<style[^]*?<\/style>)|[^]+?(?=<script|<style|$)/g, (part, script, style) => (script || style ? part : part.replace(after, "$1").replace(before, "$1"))), map: null } : undefined),
  };
}

const plugins = () => [mountedOnly(), shortBoundary(), plainStates(), withoutUnused(), withoutSpaces(), svelte()];
const options = (input: string): BuildOptions => ({
  target: "es2022",
  cssCodeSplit: false,
  assetsInlineLimit: Infinity,
  modulePreload: false,
  reportCompressedSize: false,
  rolldownOptions: {
    input,
    preserveEntrySignatures: "strict",
    treeshake: { propertyReadSideEffects: false },
    optimization: { inlineConst: { mode: "all", pass: 3 } },
    output: { entryFileNames: "file.js", assetFileNames: "explorer[extname]", codeSplitting: false },
  },
});

/** One module for files and one for pages, and one style sheet for both: a widget carries them, an exported file inlines
 *  them. So nothing may be split off: no second chunk, no asset beside the style sheet. */
export default defineConfig({
  plugins: [...plugins(), withoutPython, texts(), besides(), served()],
  base: "./",
  build: { outDir: "../clearhead/explorer/static", emptyOutDir: true, license: { fileName: "LICENSES.txt" }, ...options("src/entry/file.ts") },
});
