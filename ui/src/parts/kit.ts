/** What most places need: the state of the page, its texts, and how tokens and numbers are written. */

export { default as Gap } from "../draw/Gap.svelte";
export { default as Segmented } from "./Segmented.svelte";
export { softmax } from "../core/vectors";
export * from "../draw/format";
export * from "../i18n/index.svelte";
export * from "../state/answer.svelte";
export * from "../state/attention.svelte";
export * from "../state/explorer.svelte";
export * from "../state/load.svelte";
export type { Pixels, Run } from "../state/run";
export * from "../state/walking.svelte";
export * from "./describe";
