import { describe, expect, test } from "vitest";
import { readSafetensors } from "../../src/core/safetensors";
import type { Tensor } from "../../src/core/host";
import { tensorsOf } from "../engine/fixtures";

/** A file of a header and that many bytes of numbers. */
function file(header: string, numbers: number): Uint8Array {
  const text = new TextEncoder().encode(header);
  const made = new Uint8Array(8 + text.length + numbers);
  new DataView(made.buffer).setBigUint64(0, BigInt(text.length), true);
  made.set(text, 8);
  return made;
}

describe("what PyTorch wrote", () => {
  const known = tensorsOf("functions");

  test.each(["halves", "brains"])("all 65,536 %s exactly", (name) => {
    const made = known.get(name)!.data, expected = known.get(`${name}.float`)!.data;
    expect(made.length).toBe(65536);
    let wrong = 0;
    for (let i = 0; i < made.length; i++) if (!Object.is(made[i], expected[i])) wrong++;
    expect(wrong).toBe(0);
  });

  test("bytes and whole numbers", () => {
    expect([...known.get("bytes")!.data]).toEqual([0, 1, 2, 3, 4, 5, 6]);
    expect([...known.get("whole")!.data]).toEqual([-(2 ** 31), 0, 2 ** 31 - 1]);
  });
});

/** A file of these tensors, in an order and with a header that align the numbers of each. */
function fileOf(tensors: ReadonlyMap<string, Tensor>, metadata?: Record<string, string>): Uint8Array {
  const header: [string, unknown][] = metadata ? [["__metadata__", metadata]] : [];
  const sorted = [...tensors].sort(([, a], [, b]) => b.data.BYTES_PER_ELEMENT - a.data.BYTES_PER_ELEMENT);
  const numbers: number[] = [];
  for (const [name, { shape, data }] of sorted) {
    const dtype = data instanceof Float32Array ? "F32" : data instanceof Int32Array ? "I32" : "U8", start = numbers.length;
    numbers.push(...new Uint8Array(data.buffer));
    header.push([name, { dtype, shape, data_offsets: [start, numbers.length] }]);
  }
  const text = JSON.stringify(Object.fromEntries(header)), bytes = new TextEncoder().encode(text).length;
  const made = file(text + " ".repeat(-bytes & 7), numbers.length);
  made.set(numbers, made.length - numbers.length);
  return made;
}

describe("a file", () => {
  const tensors = new Map<string, Tensor>([
    ["bytes", { shape: [3], data: Uint8Array.of(1, 2, 255) }],
    ["a.b", { shape: [2, 2], data: Float32Array.of(1.5, -0, Infinity, 1e-40) }],
    ["whole", { shape: [], data: Int32Array.of(-7) }],
    ["empty", { shape: [0, 4], data: new Float32Array(0) }],
    ["__proto__", { shape: [1], data: Uint8Array.of(9) }],
  ]);

  test.each([0, 1, 2, 3])("from any place in memory: %i bytes in", (by) => {
    const bytes = fileOf(tensors, { reply: '{"a":"é\\n"}', ["__proto__"]: "x" });
    const moved = new Uint8Array(bytes.length + by);
    moved.set(bytes, by);
    const { metadata, tensors: found } = readSafetensors(moved.subarray(by));
    expect(found).toEqual(tensors);
    expect(metadata.reply).toBe('{"a":"é\\n"}');
  });

  test("float32 is a view where it can be", () => {
    const { buffer } = fileOf(tensors);
    expect(readSafetensors(buffer as ArrayBuffer).tensors.get("a.b")!.data.buffer).toBe(buffer);
  });

  test("no tensors, no metadata", () => {
    expect(readSafetensors(fileOf(new Map()))).toEqual({ metadata: {}, tensors: new Map() });
  });
});
