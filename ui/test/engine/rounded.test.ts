/** Products with rounded weights in WebAssembly against sums in JavaScript. */

import { expect, test } from "vitest";
import { rows } from "../../src/engine/products";
import { Memory } from "../../src/engine/rounded/memory";
import { Rounded } from "../../src/engine/rounded/rounded";
import { random } from "./fixtures";

const next = random(7);

/** A matrix of random integers in the layout of a file. */
function matrix(bits: 8 | 4, m: number, width: number, memory: Memory | null): Rounded {
  const groups = Math.ceil(width / 32), step = bits === 8 ? width : groups * 16;
  const bytes = Uint8Array.from({ length: m * step }, () => Math.floor(next() * 256));
  const scales = Float32Array.from({ length: bits === 8 ? m : m * groups }, () => 0.01 + next());
  return Rounded.of([m, width], bits, bytes, scales, memory);
}

const CASES = [[8, 1, 3, 16], [8, 5, 130, 48], [8, 4, 7, 288], [8, 9, 129, 41], [4, 1, 3, 32], [4, 6, 131, 96], [4, 3, 5, 70]] as const;

test.each(CASES)("%i bits: %i rows by %i x %i", (bits, n, m, width) => {
  const w = matrix(bits, m, width, new Memory()), x = Float32Array.from({ length: n * width }, () => next() - 0.5);
  const bias = Float32Array.from({ length: m }, next), made = new Float32Array(n * m), plain = new Float32Array(n * m);
  w.product(rows(made, m), rows(x, width), n, 0, width, bias);
  w.exactly().product(rows(plain, m), rows(x, width), n, 0, width, bias);
  const all = w.data;
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < m; j++) {
      let sum = bias[j]!, size = 1;
      for (let k = 0; k < width; k++) {
        sum += x[i * width + k]! * all[j * width + k]!;
        size += Math.abs(x[i * width + k]! * all[j * width + k]!);
      }
      expect(Math.abs(made[i * m + j]! - sum) / size).toBeLessThan(1e-6);
      expect(Math.abs(plain[i * m + j]! - sum) / size).toBeLessThan(1e-6);
    }
  }
});

test("a part of each row, aligned and not, gives what the whole gives with zeros elsewhere", () => {
  for (const [bits, from, width] of [[8, 32, 32], [8, 24, 24], [4, 32, 32], [4, 16, 48]] as const) {
    const w = matrix(bits, 10, 96, new Memory()), x = Float32Array.from({ length: width }, next), whole = new Float32Array(96);
    whole.set(x, from);
    const [a, b] = [new Float32Array(10), new Float32Array(10)];
    w.product(rows(a, 10), rows(x, width), 1, from, width);
    w.exactly().product(rows(b, 10), rows(whole, 96), 1, 0, 96);
    for (let j = 0; j < 10; j++) expect(Math.abs(a[j]! - b[j]!)).toBeLessThan(1e-3);
  }
});
