/** Where a value lives: `decoder.blocks.3.attn.weights[h=2,t=0]`, with indices on axes where given. */

import type { Numbers, Tensor } from "./host";
import { size, strides } from "./tensor";

export type Index = [axis: string, at: number];

export interface Address {
  path: string;
  index: Index[];
}

const ADDRESS = /^([A-Za-z_][\w.]*)(?:\[([^\]]*)\])?$/;
const PART = /^\s*([a-z])\s*=\s*(-?\d+)\s*$/;

/** Parses an address. Throws a one-line Error if the text is not one. */
export function parseAddress(text: string): Address {
  const match = ADDRESS.exec(text.trim());
  if (!match) throw new Error(`"${text}": expected an address such as decoder.blocks.0.attn.weights[h=2]`);
  const index = (match[2] ?? "").split(",").filter(Boolean).map((part): Index => {
    const pair = PART.exec(part);
    if (!pair) throw new Error(`"${text}": expected an index such as h=2, got "${part.trim()}"`);
    return [pair[1]!, Number(pair[2])];
  });
  return { path: match[1]!, index };
}

export function formatAddress({ path, index }: Address): string {
  return index.length === 0 ? path : `${path}[${index.map(([axis, at]) => `${axis}=${at}`).join(",")}]`;
}

/** Numbers of a tensor as another shape sees them, without copying: the one at an index is
 *  `data[offset + sum(index * strides)]`. */
export interface View {
  shape: number[];
  strides: number[];
  offset: number;
  data: Numbers;
}

/** Like `tensor[…]` with indices on axes named by letters; those axes are gone. Negative ones count from the end. */
export function view(tensor: Tensor, axes: string, index: readonly Index[], name = "value"): View {
  const letters = axes.split(" ");
  const steps = strides(tensor.shape);
  const fixed = new Map<number, number>();
  let offset = 0;
  for (const [letter, at] of index) {
    const axis = letters.indexOf(letter), length = tensor.shape[axis];
    if (axis < 0 || length === undefined) throw new Error(`${name}: axis "${letter}" is not one of "${axes}"`);
    if (at < -length || at >= length) throw new Error(`${name}: ${letter}=${at} is outside 0..${length - 1}`);
    fixed.set(axis, at < 0 ? at + length : at);
  }
  for (const [axis, at] of fixed) offset += at * steps[axis]!;
  const free = tensor.shape.map((_, axis) => axis).filter((axis) => !fixed.has(axis));
  return { shape: free.map((a) => tensor.shape[a]!), strides: free.map((a) => steps[a]!), offset, data: tensor.data };
}

/** The part of a tensor at an index: a view of its numbers where they stand together, else a copy. */
export function indexed(tensor: Tensor, axes: string, index: readonly Index[], name?: string): Tensor {
  if (index.length === 0) return tensor;
  const part = view(tensor, axes, index, name);
  const n = size(part.shape), whole = strides(part.shape);
  const together = part.shape.every((length, axis) => length === 1 || part.strides[axis] === whole[axis]);
  if (together) return { shape: part.shape, data: part.data.subarray(part.offset, part.offset + n) };
  const data = new (part.data.constructor as new (n: number) => Numbers)(n);
  let i = 0;
  eachPlace(part, (place) => (data[i++] = part.data[place]!));
  return { shape: part.shape, data };
}

/** Calls `visit` with the offset in `data` of each number of a view, in order. */
export function eachPlace(part: View, visit: (place: number) => void): void {
  const go = (axis: number, start: number): void => {
    if (axis === part.shape.length) return visit(start);
    for (let i = 0; i < part.shape[axis]!; i++) go(axis + 1, start + i * part.strides[axis]!);
  };
  go(0, part.offset);
}
