/** Names of models and their parts, for readers. */

import type { About, Plan } from "../core/protocol";
import { percent } from "../draw/format";
import { integer, language, t } from "../i18n/index.svelte";
import type { Page, Part } from "../state/page";

/** The last part of a path. */
export function modelName(name: string): string {
  return name.split("/").at(-1) || name;
}

/** The step that stands for the model that this one is compared with. */
export const COMPARED = -1;

/** What a checkpoint is called, or the model that this one is compared with. */
export function stepName({ compared }: About, step: number): string {
  return step === COMPARED ? modelName(compared ?? "") : t("timeline.step", { n: integer(step) });
}

export function describeModel(about: About): string {
  const { encoder, decoder } = about.plan.config;
  const layers = [encoder, decoder].filter((stack) => stack !== null).map((stack) => stack.n_layers).join(" + ");
  const stack = (decoder ?? encoder)!;
  const parts = [
    t(`kind.${about.kind}`), t("model.layers", { n: layers }), t("model.heads", { n: stack.n_heads }),
    `d ${stack.d_model}`, t("model.parameters", { n: integer(about.parameters) }),
  ];
  if (about.dtype !== "float32") parts.push(t(about.dtype.startsWith("int") ? "model.rounded" : "model.dtype", { name: about.dtype }));
  if (about.step !== null) parts.push(t("model.step", { n: integer(about.step) }));
  return parts.join(" · ");
}

/** "Decoder, block 1, cross-attention, head 0": as much of it as is given; in a model of one stack without its name. */
export function placeName({ config }: Pick<Plan, "config">, { stack, layer, part, head }: Pick<Page, "stack" | "layer"> & Partial<Pick<Page, "part" | "head">>): string {
  const both = config.encoder && config.decoder, names = { stack: t(`overview.${stack}`), n: layer, head: head ?? 0, part: partName(part) };
  const block = t(both ? "overview.block_of" : "crumb.layer", names);
  const name = part === undefined ? block : head === undefined ? t("crumb.part", { block, part: names.part }) : t(both ? "overview.head_of" : "overview.head", names);
  return name.charAt(0).toLocaleUpperCase() + name.slice(1);
}

/** What mixes tokens: self-attention, cross-attention, or a state. */
export function partName(part?: Part): string {
  return t(`overview.${part === "attn" || !part ? "self" : part}`);
}

/** "one, two and three". */
export const listed = (names: readonly string[], type: "conjunction" | "disjunction" = "conjunction"): string => new Intl.ListFormat(language(), { type }).format(names);

/** The first of some in their order, and all that are written like it; of many two. */
export function firsts<T>(all: readonly T[], said: (one: T) => string, name: (one: T) => string, type?: "disjunction"): string {
  const names = all.filter((one) => said(one) === said(all[0]!)).map(name);
  return listed(names[3] ? [...names.slice(0, 2), t("attribution.rest", { n: names.length - 2 })] : names, type);
}

/** A probability: "81 %", or "1 in 48,000" where a percentage says nothing. */
export function odds(p: number): string {
  return p > 1e-9 && p < 0.001 ? t("unit.one_in", { n: integer(Number((1 / p).toPrecision(2))) }) : percent(p < 0 ? 0 : p);
}
