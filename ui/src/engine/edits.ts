/** Replaces a value by another, as clearhead/trace.py does. */

import { eachPlace, parseAddress, view, type Address, type View } from "../core/address";
import type { Tensor } from "../core/host";
import type { Edit, RunRequest } from "../core/protocol";
import { floats, size, toFloats, type Floats } from "../core/tensor";
import { axesOf } from "./taps";

/** The value of another run at an address without indices. */
export type Other = (from: RunRequest, path: string) => Tensor;

/** Edits by the path that they change, in order. */
export function byPath(edits: readonly Edit[]): Map<string, { edit: Edit; at: Address }[]> {
  const found = new Map<string, { edit: Edit; at: Address }[]>();
  for (const edit of edits) {
    const at = parseAddress(edit.at);
    found.set(at.path, [...(found.get(at.path) ?? []), { edit, at }]);
  }
  return found;
}

/** Whether an edit writes the number at an address, which has an index on every axis; `shape` is that of the value. */
export function overwrites(edits: readonly Edit[], { path, index }: Address, shape: readonly number[]): boolean {
  const letters = axesOf(path, shape.length)?.split(" ") ?? [];
  const place = (axis: string, i: number): number => (i < 0 ? i + (shape[letters.indexOf(axis)] ?? 0) : i);
  return (byPath(edits).get(path) ?? []).some(({ at }) =>
    at.index.every(([axis, i]) => index.some(([other, j]) => other === axis && place(axis, j) === place(axis, i))));
}

/** A copy of the value with the edit made at an address in it. Throws a one-line Error if the edit does not fit it. */
export function edited(value: Floats, edit: Edit, at: Address, other?: Other): Floats {
  const axes = axesOf(at.path, value.shape.length);
  if (axes === null) throw new Error(noSuch(at.path));
  const made = floats(value.shape, value.data.slice());
  const part = view(made, axes, at.index, edit.at);
  const numbers = replacement(edit, at, part, axes, other);
  let i = 0;
  eachPlace(part, (place) => (made.data[place] = numbers(i++, value.data[place]!)));
  return made;
}

/** The new number of cell i of a part, which holds x. */
type Replacement = (i: number, x: number) => number;

function replacement(edit: Edit, at: Address, part: View, axes: string, other?: Other): Replacement {
  switch (edit.do) {
    case "zero":
      return () => 0;
    case "close":
      return () => -Infinity;
    case "set":
      return given(edit, part);
    case "scale": {
      const factor = numberOf(edit);
      return (_, x) => x * factor;
    }
    case "mean":
      return meanOverPositions(edit, at, part, axes);
    case "patch":
      return patch(edit, part, axes, other);
    default:
      throw new Error(`${edit.at}: no edit is called "${String(edit.do)}"`);
  }
}

function numberOf(edit: Edit): number {
  if (typeof edit.value === "number") return edit.value;
  throw new Error(`${edit.at}: expected a number to ${edit.do}, got ${JSON.stringify(edit.value) ?? "none"}`);
}

/** A number for every cell, or a row of them. */
function given(edit: Edit, part: View): Replacement {
  if (!Array.isArray(edit.value)) return ((x) => () => x)(numberOf(edit));
  const numbers = edit.value, n = numbers.length;
  if (part.shape.length === 0 || (n !== 1 && n !== part.shape.at(-1))) throw new Error(misfit(edit, part, [n]));
  return (i) => numbers[i % n]!;
}

/** The mean over axis t, or else s, if the address has no index on it. */
function meanOverPositions(edit: Edit, at: Address, part: View, axes: string): Replacement {
  const rest = axes.split(" ").filter((letter) => !at.index.some(([axis]) => axis === letter));
  const axis = rest.findIndex((letter) => letter === "t" || letter === "s");
  if (axis < 0) throw new Error(`${edit.at}: expected positions to take the mean over, got one or none; try set`);
  const n = part.shape[axis]!, step = size(part.shape.slice(axis + 1));
  const sums = new Float64Array(size(part.shape) / n);
  const place = (i: number): number => Math.floor(i / (n * step)) * step + (i % step);
  cellsOf(part).forEach((x, i) => (sums[place(i)]! += x / n));
  return (i) => sums[place(i)]!;
}

/** The same part of the other run's value. Its axes of length 1 are broadcast. */
function patch(edit: Edit, part: View, axes: string, other?: Other): Replacement {
  if (!edit.from || !other) throw new Error(`${edit.at}: expected another run to patch from, got none`);
  const { path, index } = parseAddress(edit.at), from = view(toFloats(other(edit.from, path)), axes, index, edit.at);
  const fits = from.shape.length === part.shape.length && from.shape.every((n, i) => n === 1 || n === part.shape[i]);
  if (!fits) throw new Error(misfit(edit, part, from.shape));
  const steps = from.strides.map((step, axis) => (from.shape[axis] === 1 ? 0 : step));
  const numbers = cellsOf({ ...from, shape: part.shape, strides: steps });
  return (i) => numbers[i]!;
}

function cellsOf(part: View): number[] {
  const numbers: number[] = [];
  eachPlace(part, (place) => numbers.push(part.data[place]!));
  return numbers;
}

export function noSuch(path: string): string {
  return `${path}: expected an address of this model, got another`;
}

function misfit(edit: Edit, part: View, got: readonly number[]): string {
  return `${edit.at}: expected an edit of shape [${part.shape}], got [${got}]; try a number`;
}
