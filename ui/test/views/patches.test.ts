import { describe, expect, it } from "vitest";
import { meanOfHeads, pictureOf } from "../../src/views/image/patches";

describe("pictureOf", () => {
  it("makes the smallest number black and the largest full, channel by channel", () => {
    const data = Float32Array.of(-1, 1, 0, -1, -1, -1); // c y x: 3 x 1 x 2
    const { width, height, rgba } = pictureOf({ shape: [3, 1, 2], data });
    expect([width, height]).toEqual([2, 1]);
    expect([...rgba]).toEqual([0, 128, 0, 255, 255, 0, 0, 255]);
  });

  it("is grey for one channel", () => {
    expect([...pictureOf({ shape: [1, 1, 2], data: Float32Array.of(0, 4) }).rgba]).toEqual([0, 0, 0, 255, 255, 255, 255, 255]);
  });

  it("is black where all numbers are the same", () => {
    expect([...pictureOf({ shape: [3, 1, 1], data: Float32Array.of(2, 2, 2) }).rgba]).toEqual([0, 0, 0, 255]);
  });
});

it("takes the mean over heads", () => {
  expect([...meanOfHeads({ shape: [2, 3], data: Float32Array.of(1, 0, 0, 0, 0.5, 0.5) })]).toEqual([0.5, 0.25, 0.25]);
});
