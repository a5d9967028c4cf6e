/** The parts of a stop as text. */

import type { Printed, Stop } from "../core/walk";
import type { Tensor } from "../core/host";
import { t } from "./kit";
import { placeIn } from "../state/walk";
import { chapterAt } from "./course";

/** The heading of a stop: its own, or the name of its place. */
export function titleOf(stop: Stop): string {
  if (stop.title) return t(stop.title);
  const { view, step } = placeIn(stop);
  return view === "attention" && step ? t(`step.${step}`) : t(`view.${view}`);
}

/** An address that a link may lead to: a chapter by its name, on the web, or beside the page; null for any other. */
export function linkTo(address: string | undefined): string | null {
  const bare = address?.trim() ?? "";
  if (/^[a-z-]+$/.test(bare)) return chapterAt(bare);
  return /^https?:\/\//i.test(bare) || /^[\w./#?-][^:]*$/.test(bare) ? bare : null;
}

/** A value in the rows of what is printed; null if it has another size. */
export function rowsOf({ data }: Tensor, printed: readonly (readonly number[])[]): number[][] | null {
  const n = printed.reduce((sum, row) => sum + row.length, 0);
  if (data.length !== n) return null;
  let start = 0;
  return printed.map((row) => Array.from(data.subarray(start, (start += row.length))));
}

/** Decimals that are shown: those of the document, four for exact numbers that are not whole. */
export function digitsOf({ decimals, printed, right }: Printed): number {
  if (decimals !== null) return decimals;
  const all = [printed, right].flatMap((rows) => (Array.isArray(rows) ? rows.flat() : []));
  return all.every(Number.isInteger) ? 0 : 4;
}

/** Whether a printed number is further from the right one than its rounding explains. */
export function differs(printed: number | undefined, right: number | undefined, { decimals }: Printed): boolean {
  if (printed === undefined || right === undefined) return false;
  const unit = decimals === null ? 1e-6 * Math.max(1, Math.abs(printed)) : 0.5 * 10 ** -decimals;
  return Math.abs(printed - right) > unit * 1.001 + 1e-7 * Math.abs(printed);
}
