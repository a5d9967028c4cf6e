import { describe, expect, test } from "vitest";
import { readSafetensors } from "../../src/core/safetensors";
import type { Tensor } from "../../src/core/host";
import { random, tensorsOf } from "../engine/fixtures";

/** A file of a header and that many bytes of numbers. */
function file(header: unknown, numbers = 0, length?: bigint): Uint8Array {
  const text = new TextEncoder().encode(typeof header === "string" ? header : JSON.stringify(header));
  const made = new Uint8Array(8 + text.length + numbers);
  new DataView(made.buffer).setBigUint64(0, length ?? BigInt(text.length), true);
  made.set(text, 8);
  return made;
}

const fact = (fields: object = {}): object => ({ dtype: "F32", shape: [2], data_offsets: [0, 8], ...fields });

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

describe("a malformed file is refused in one line", () => {
  const refused: [string, Uint8Array, string][] = [
    ["empty", new Uint8Array(0), "expected at least 8 bytes, got 0"],
    ["a header longer than the file", file({}, 0, 3n), "expected a header of at most 2 bytes, got 3"],
    ["a huge header", file({}, 0, 2n ** 63n), "expected a header of at most 2 bytes"],
    ["no JSON", file("{"), "expected a header in JSON"],
    ["no UTF-8", file("{}").fill(0xff, 8), "expected a header in JSON"],
    ["a list", file([]), "expected a header that is a JSON object"],
    ["null", file("null"), "expected a header that is a JSON object"],
    ["metadata of numbers", file({ __metadata__: { a: 1 } }), "a: expected a string"],
    ["metadata no object", file({ __metadata__: [] }), "expected __metadata__ to be an object"],
    ["a fact no object", file({ a: 1 }), "a: expected an object with dtype, shape and data_offsets"],
    ["a dtype", file({ a: fact({ dtype: "toString" }) }, 8), 'F32, I32, U8, F16, BF16, I64, got "toString"'],
    ["a negative length", file({ a: fact({ shape: [-2] }) }, 8), "a: expected a shape of whole numbers, got [-2]"],
    ["half a length", file({ a: fact({ shape: [0.5] }) }, 8), "a: expected a shape of whole numbers, got [0.5]"],
    ["a shape of text", file({ a: fact({ shape: "2" }) }, 8), 'a: expected a shape of whole numbers, got "2"'],
    ["no shape", file({ a: { dtype: "F32" } }, 8), "a: expected a shape of whole numbers, got nothing"],
    ["one offset", file({ a: fact({ data_offsets: [0] }) }, 8), "a: expected two data_offsets, got [0]"],
    ["a shape of more", file({ a: fact({ shape: [3] }) }, 8), "a: expected 12 bytes for [3], got 8"],
    ["a product beyond numbers", file({ a: fact({ shape: Array(16).fill(2 ** 40) }) }, 8), "a: expected"],
    ["too many axes", file({ a: fact({ shape: Array(17).fill(1) }) }, 8), "a: expected a shape of whole numbers"],
    ["a product of nothing", file({ a: fact({ shape: [...Array(15).fill(2 ** 50), 0] }) }, 8), "a: expected 0 bytes"],
    ["another such", file({ a: fact({ shape: [...Array(15).fill(2 ** 53 - 1), 0] }) }, 8), "a: expected 0 bytes"],
    ["offsets backwards", file({ a: fact({ data_offsets: [8, 0] }) }, 8), "a: expected 8 bytes for [2], got -8"],
    ["offsets beyond", file({ a: fact() }, 4), "expected 8 bytes of numbers, got 4"],
    ["bytes left over", file({ a: fact() }, 12), "expected 8 bytes of numbers, got 12"],
    ["a gap", file({ a: fact({ data_offsets: [4, 12] }) }, 12), "a: expected its numbers at byte 0, got 4"],
    ["an overlap", file({ a: fact(), b: fact({ data_offsets: [4, 12] }) }, 12), "b: expected its numbers at byte 8"],
    ["too big for 32 bits", file({ a: fact({ dtype: "I64", shape: [1] }) }, 8).fill(0x7f, -8), "a: expected whole"],
    ["a name of many lines", file({ ["a\nb\u2028" + "c".repeat(999)]: 1 }), "a b c"],
  ];
  test.each(refused)("%s", (_, bytes, message) => {
    let said = "";
    try {
      readSafetensors(bytes);
    } catch (error) {
      said = (error as Error).message;
    }
    expect(said).toContain(message);
    expect(said).toMatch(/^safetensors: [^\n\r\u2028]{1,260}; try reading it again$/);
  });

  test("whatever bytes there are, a file or an Error of one line", () => {
    const next = random(7);
    const tensors = new Map<string, Tensor>([
      ["a", { shape: [2, 3], data: new Float32Array(6) }],
      ["b", { shape: [5], data: new Uint8Array(5) }],
    ]);
    const whole = fileOf(tensors, { reply: "{}" });
    let refusals = 0;
    for (let i = 0; i < 20_000; i++) {
      const bytes = whole.slice(0, next() < 0.3 ? Math.floor(next() * whole.length) : undefined);
      for (let n = 1 + Math.floor(next() * 4); n > 0; n--) {
        bytes[Math.floor(next() * bytes.length)] = Math.floor(next() * 256);
      }
      try {
        for (const { shape, data } of readSafetensors(bytes).tensors.values()) {
          expect(data.length).toBe(shape.reduce((product, length) => product * length, 1));
        }
      } catch (error) {
        refusals++;
        expect((error as Error).message).toMatch(/^safetensors: [^\n]+$/);
      }
    }
    expect(refusals).toBeGreaterThan(10_000);
  });
});
