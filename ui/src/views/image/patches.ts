/** The picture that a model reads, from its numbers. */

import type { Tensor } from "../../core/host";

export interface Picture {
  width: number;
  height: number;
  rgba: Uint8ClampedArray<ArrayBuffer>;
}

/** c y x to colours: the smallest number black, the largest full; one channel is grey. What the model's preparation
 *  did to each channel is not undone, so colours may be off; shapes are not. */
export function pictureOf({ shape, data }: Tensor): Picture {
  const [channels = 1, height = 0, width = 0] = shape;
  let low = Infinity,
    high = -Infinity;
  for (const x of data) [low, high] = [Math.min(low, x), Math.max(high, x)];
  const span = high - low || 1,
    size = width * height;
  const rgba = new Uint8ClampedArray(size * 4);
  for (let i = 0; i < size; i++) {
    for (let c = 0; c < 3; c++) {
      const x = data[(channels >= 3 ? c : 0) * size + i] ?? low;
      rgba[i * 4 + c] = ((x - low) / span) * 255;
    }
    rgba[i * 4 + 3] = 255;
  }
  return { width, height, rgba };
}

export function canvasOf({ width, height, rgba }: Picture): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  canvas.getContext("2d")?.putImageData(new ImageData(rgba, width, height), 0, 0);
  return canvas;
}

/** h s (one query's rows of every head) to their mean, s. */
export function meanOfHeads({ shape, data }: Tensor): Float32Array {
  const [heads = 1, keys = 0] = shape;
  const mean = new Float32Array(keys);
  for (let i = 0; i < heads * keys; i++) mean[i % keys]! += data[i]! / heads;
  return mean;
}
