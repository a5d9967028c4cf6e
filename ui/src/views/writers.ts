/** The parts that write to the residual stream: what each is called, and where the page shows it. */

import { t } from "../parts/kit";
import { briefName } from "../parts/making";
import type { Page } from "../state/page";
import { writerOf } from "./logits/logits";
import type { StackName } from "../core/protocol";

/** The name of a part, from its address, or from the name of a bias. */
export function writerName(at: string): string {
  const of = writerOf(at), layer = of.layer ?? 0;
  if (of.kind === "head") return t(of.part === "cross" ? "attribution.cross" : "attribution.head", { layer, head: of.head ?? 0 });
  if (of.kind === "ffn") return t("attribution.ffn", { layer });
  if (of.kind === "embedding") return t(at.endsWith("positions") ? "attribution.positions" : "attribution.tokens");
  if (at.endsWith(".bias")) return t("attribution.bias", { at: at.replace(/^(encoder|decoder)\.(blocks\.)?|\.bias$/g, "") });
  return /\.positions\./.test(at) ? t("why.distance") : briefName(at);
}

/** The place of a part, at the position where it wrote; null of a bias, which is the same everywhere. */
export function writerPlace(at: string, position: number): Partial<Page> | null {
  const { kind, layer, part, head, stack } = writerOf(at);
  const where = { stack: stack as StackName, layer: layer ?? 0, query: position };
  if (kind === "head") return { ...where, view: "attention", part: part ?? "attn", head: head ?? 0 };
  if (kind === "ffn") return { ...where, view: "ffn" };
  if (kind === "embedding") return { stack: where.stack, query: position, view: at.endsWith("positions") ? "position" : "embedding" };
  return null;
}
