/** Shapes and the numbers under them, row by row. */

import type { Numbers, Tensor } from "./host";

/** What the engine computes with. */
export interface Floats extends Tensor {
  data: Float32Array;
}

export function size(shape: readonly number[]): number {
  return shape.reduce((product, length) => product * length, 1);
}

/** How far apart two neighbours on each axis are. */
export function strides(shape: readonly number[]): number[] {
  const steps = new Array<number>(shape.length).fill(1);
  for (let axis = shape.length - 2; axis >= 0; axis--) steps[axis] = steps[axis + 1]! * shape[axis + 1]!;
  return steps;
}

/** The length of an axis, the last one being -1. */
export function axisLength(tensor: Tensor, axis: number): number {
  const length = tensor.shape.at(axis);
  if (length === undefined) throw new Error(`a tensor of ${tensor.shape.length} axes has no axis ${axis}`);
  return length;
}

/** Zeros, or the given numbers, in a shape. */
export function floats(shape: number[], data: Float32Array = new Float32Array(size(shape))): Floats {
  const n = size(shape);
  if (data.length !== n) throw new Error(`shape [${shape}]: expected ${n} numbers, got ${data.length}`);
  return { shape, data };
}

/** As float32: itself where it is, and where it makes its numbers row by row. */
export function toFloats(tensor: Tensor): Floats {
  if (tensor.row) return tensor as Floats;
  const { shape, data } = tensor;
  return data instanceof Float32Array ? { shape, data } : { shape, data: Float32Array.from(data) };
}

/** The numbers at leading indices: a view, if they are there. */
export function row(tensor: Tensor, ...index: number[]): Numbers {
  if (tensor.row && index.length === 1) return tensor.row(index[0]!);
  const width = size(tensor.shape.slice(index.length));
  const start = index.reduce((at, i, axis) => at * tensor.shape[axis]! + i, 0) * width;
  return tensor.data.subarray(start, start + width);
}

/** One number. */
export function cell(tensor: Tensor, index: readonly number[]): number {
  const at = index.reduce((offset, i, axis) => offset * tensor.shape[axis]! + i, 0);
  const found = tensor.data[at];
  if (found === undefined) throw new Error(`[${index}] is outside [${tensor.shape}]`);
  return found;
}

/** The largest absolute value, infinities excluded. */
export function largest(data: Numbers): number {
  let most = 0;
  for (const x of data) {
    const absolute = Math.abs(x);
    if (absolute > most && absolute !== Infinity) most = absolute;
  }
  return most;
}
