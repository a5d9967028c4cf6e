/** Edits in words and from a form. */

import { readNumber } from "../core/numbers";
import type { Edit, Fact } from "../core/protocol";
import { language, type Run } from "../parts/kit";

/** `scores[h=0,t=2] set 1.5`: an edit in one line. */
export function editText(edit: Edit, write: (x: number, digits?: number) => string): string {
  const values = edit.value === undefined ? [] : Array.isArray(edit.value) ? edit.value : [edit.value];
  return [edit.at, edit.do, ...values.map((x) => write(x, 3))].join(" ");
}

/** The shape and axes of a value; masked scores, which are not stored, are as large as the weights. */
export function factOf(run: Run, path: string): Fact | undefined {
  const { facts } = run.reply;
  return facts[path] ?? facts[path.replace(/\.masked$/, ".weights")];
}

/** What stands at place i of an axis of a value: the number, with the token if the axis is one of positions. */
export function placeText(run: Run, path: string, axis: string, i: number): string {
  if (axis !== "t" && axis !== "s") return String(i);
  const { encoder, decoder } = run.reply.tokens, reads = axis === "s" && path.includes(".cross.") ? encoder : path.startsWith("encoder.") ? encoder : (decoder ?? encoder);
  return `${i} ${(reads?.[i]?.text ?? "").replace("▁", "")}`.trim();
}

/** Numbers separated by spaces, commas or semicolons; null if one of them is none. */
export function numbersOf(text: string): number[] | null {
  const numbers = text.trim().split(/[\s;]+|,\s+/).map((part) => readNumber(part, language()));
  return numbers.every((one) => one !== null) ? numbers : null;
}
