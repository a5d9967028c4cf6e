/** The parts of a circuit in words. */

import type { CircuitsReply, ModelConfig } from "../../core/protocol";
import { placeName, t, wordOf } from "../../parts/kit";
import { partOf } from "./circuits";

/** The name of a writer or a reader: "Decoder, block 3, head 2"; unless `brief`, with what of a head reads. */
export function partTitle(at: string, config: ModelConfig, brief = false): string {
  const { kind, stack, layer, part, head, side } = partOf(at, config), of = { stack: t(`stack.${stack}`), n: layer };
  if (kind === "answer") return t("circuits.answer");
  if (kind === "embed") return t(at.endsWith("positions") ? "circuits.positions" : "circuits.tokens", of);
  if (kind === "feature") {
    const site = side.split(".").slice(3, -1).join(".");
    return head < 0 ? t(at.endsWith("error") ? "circuits.error" : "circuits.others", { ...of, site }) : t("circuits.feature", { ...of, site, feature: head });
  }
  const what = kind === "ffn" ? t("patching.at.ffn") : t(part === "cross" ? "patching.cross" : "patching.head", { h: head });
  return t("crumb.part", { block: placeName({ config }, { stack, layer }), part: what }) + (!brief && /^[qkv]$/.test(side) ? `, ${t(`circuits.side.${side}`)}` : "");
}

/** Where most of what a writer adds to the answer stands, if it is more than this share. */
export function wordIn(writer: string, { nodes }: CircuitsReply, tokens: readonly string[], share = 0.5): string {
  const shares = (nodes[writer] ?? []).map(Math.abs), most = Math.max(...shares);
  return most > share * shares.reduce((sum, one) => sum + one, 0) ? wordOf(tokens[shares.indexOf(most)] ?? "") : "";
}
