/** float16 and bfloat16, which JavaScript has no arrays for. */

let table: Float32Array | null = null;

/** The number that the 16 bits of a float16 mean. */
export function fromHalf(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 0x1f) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

export function halvesToFloats(halves: Uint16Array): Float32Array {
  table ??= Float32Array.from({ length: 65536 }, (_, bits) => fromHalf(bits));
  const made = new Float32Array(halves.length);
  for (let i = 0; i < halves.length; i++) made[i] = table[halves[i]!]!;
  return made;
}

/** A bfloat16 is the upper half of a float32. */
export function brainToFloats(halves: Uint16Array): Float32Array {
  const bits = new Uint32Array(halves.length);
  for (let i = 0; i < halves.length; i++) bits[i] = halves[i]! << 16;
  return new Float32Array(bits.buffer);
}
