/** The random numbers of clearhead/randomness.py: each is decided by what it is for. */

const MASK = (1n << 64n) - 1n;
const START = [
  0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n,
  0x510e527fade682d1n, 0x9b05688c2b3e6c1fn, 0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n,
];
/** The words of the block that each round mixes, in hexadecimal. */
const ORDERS = [
  "0123456789abcdef", "ea489fd61c02b753", "b8c052fdae367194", "7931dcbe265a40f8", "905724afe1bc683d",
  "2c6a0b834d75fe19", "c51fed4a0763928b", "db7ec13950f4862a", "6fe9b308c2d714a5", "a2847615fb9e3cd0",
];
/** The words of the state that a step mixes: columns, then diagonals. */
const QUARTERS = ["048c", "159d", "26ae", "37bf", "05af", "16bc", "278d", "349e"];

/** A number in [0, 1), as `uniform(*parts)` of clearhead/generation/sampling.py. */
export function uniform(...parts: readonly (string | number)[]): number {
  const text = `(${parts.map((part) => (typeof part === "string" ? `'${part}'` : part)).join(", ")})`;
  return Number(blake2b(new TextEncoder().encode(text)) >> 11n) / 2 ** 53;
}

/** The digest of eight bytes of a text of at most 128, as a little-endian number   (RFC 7693) */
export function blake2b(text: Uint8Array): bigint {
  const block = new DataView(new ArrayBuffer(128));
  new Uint8Array(block.buffer).set(text);
  const words = Array.from({ length: 16 }, (_, i) => block.getBigUint64(8 * i, true));
  const h = [START[0]! ^ 0x01010008n, ...START.slice(1)], v = [...h, ...START];
  v[12]! ^= BigInt(text.length);
  v[14]! ^= MASK;
  for (let round = 0; round < 12; round++) {
    const order = ORDERS[round % 10]!;
    QUARTERS.forEach((quarter, i) => {
      const [a, b, c, d] = Array.from(quarter, (digit) => parseInt(digit, 16)) as [number, number, number, number];
      const [x, y] = [order[2 * i]!, order[2 * i + 1]!].map((digit) => words[parseInt(digit, 16)]!) as [bigint, bigint];
      v[a] = (v[a]! + v[b]! + x) & MASK;
      v[d] = turned(v[d]! ^ v[a]!, 32n);
      v[c] = (v[c]! + v[d]!) & MASK;
      v[b] = turned(v[b]! ^ v[c]!, 24n);
      v[a] = (v[a]! + v[b]! + y) & MASK;
      v[d] = turned(v[d]! ^ v[a]!, 16n);
      v[c] = (v[c]! + v[d]!) & MASK;
      v[b] = turned(v[b]! ^ v[c]!, 63n);
    });
  }
  return h[0]! ^ v[0]! ^ v[8]!;
}

function turned(x: bigint, by: bigint): bigint {
  return ((x >> by) | (x << (64n - by))) & MASK;
}
