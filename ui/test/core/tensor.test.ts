import { expect, test } from "vitest";
import { axisLength, cell, floats, largest, row, size, strides, toFloats } from "../../src/core/tensor";

const tensor = floats([2, 3], Float32Array.of(1, -9, 3, 4, 5, -Infinity));

test("sizes and strides", () => {
  expect([size([]), size([2, 3]), size([4, 0])]).toEqual([1, 6, 0]);
  expect([strides([2, 3, 4]), strides([])]).toEqual([[12, 4, 1], []]);
  expect([axisLength(tensor, 0), axisLength(tensor, -1)]).toEqual([2, 3]);
  expect(() => axisLength(tensor, 2)).toThrow("a tensor of 2 axes has no axis 2");
});

test("rows and cells", () => {
  expect([...row(tensor, 0)]).toEqual([1, -9, 3]);
  expect(row(tensor, 0).buffer).toBe(tensor.data.buffer);
  expect([...row(tensor, 1, 1)]).toEqual([5]);
  expect(cell(tensor, [1, 0])).toBe(4);
  expect(() => cell(tensor, [2, 0])).toThrow("[2,0] is outside [2,3]");
});

test("the largest number without its sign", () => {
  expect(largest(tensor.data)).toBe(9);
  expect(largest(new Float32Array(0))).toBe(0);
});

test("float32 as it is, others converted, and never another size", () => {
  expect(toFloats(tensor).data).toBe(tensor.data);
  expect(toFloats({ shape: [1], data: Int32Array.of(-3) })).toEqual(floats([1], Float32Array.of(-3)));
  expect(() => floats([2], new Float32Array(3))).toThrow("shape [2]: expected 2 numbers, got 3");
});
