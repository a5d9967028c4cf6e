import { expect, test } from "vitest";
import { brainToFloats, fromHalf, halvesToFloats } from "../../src/core/half";

test("a half is its sign, its exponent and its fraction", () => {
  expect([0x0000, 0x3c00, 0xc000, 0x7bff, 0x0400, 0x0001, 0x3555].map(fromHalf)).toEqual(
    [0, 1, -2, 65504, 2 ** -14, 2 ** -24, 0.333251953125],
  );
  expect(Object.is(fromHalf(0x8000), -0)).toBe(true);
  expect([fromHalf(0x7c00), fromHalf(0xfc00), fromHalf(0x7e01)]).toEqual([Infinity, -Infinity, NaN]);
});

test("many at once are what each is alone", () => {
  const bits = Uint16Array.from({ length: 65536 }, (_, i) => i);
  expect(halvesToFloats(bits)).toEqual(Float32Array.from(bits, fromHalf));
});

test("a bfloat16 is the upper half of a float32", () => {
  expect([...brainToFloats(Uint16Array.of(0x3f80, 0xc040, 0xff80, 0))]).toEqual([1, -3, -Infinity, 0]);
});
