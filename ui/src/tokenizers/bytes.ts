/** Bytes as printable characters (Radford et al. 2019). */

import { mapped, type Aligned } from "./aligned";

const isPrintable = (byte: number): boolean => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
const others = Array.from({ length: 256 }, (_, i) => i).filter((byte) => !isPrintable(byte));

/** The character of each byte. */
export const SHOWN = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isPrintable(byte) ? byte : 256 + others.indexOf(byte)));

export function bytesOf(text: Aligned): Aligned {
  return mapped(text, (char) => utf8(char).map((byte) => SHOWN[byte]!));
}

export function utf8(text: string): number[] {
  return [...new TextEncoder().encode(text)];
}
