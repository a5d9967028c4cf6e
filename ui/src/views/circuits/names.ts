/** The parts of a circuit in words. */

import type { ModelConfig } from "../../core/protocol";
import { t } from "../../parts/kit";
import { partOf } from "./circuits";

/** The name of a writer or a reader: "Decoder 3 · head 2 · query". */
export function partTitle(at: string, config: ModelConfig): string {
  const { kind, stack, layer, part, head, side } = partOf(at, config);
  if (kind === "answer") return t("circuits.answer");
  if (kind === "embed") return t(at.endsWith("positions") ? "circuits.positions" : "circuits.tokens", { stack: t(`stack.${stack}`) });
  if (kind === "feature") {
    const of = { stack: t(`stack.${stack}`), n: layer, site: side.split(".").slice(3, -1).join(".") };
    return head < 0 ? t(at.endsWith("error") ? "circuits.error" : "circuits.others", of) : t("circuits.feature", { ...of, feature: head });
  }
  if (kind === "ffn") return t("circuits.ffn", { stack: t(`stack.${stack}`), n: layer });
  const name = t(part === "cross" ? "circuits.cross" : "circuits.head", { stack: t(`stack.${stack}`), n: layer, head });
  return /^[qkv]$/.test(side) ? `${name} · ${side.toUpperCase()}` : name;
}
