/** The text that tokens spell, where no tokenizer is at hand: clearhead/text/tokenizers.py shows a space as ▁, a line end as ⏎
 *  and part of a character as <0xE2>. */

const BYTE = /^<0x([0-9A-F]{2})>$/, MARK = /^(<[^>]*>|\[[^\]]*\])$/;

/** Words stand apart if no token of the vocabulary has a space. The beginning of a whole text has none. */
export function spelled(ids: readonly number[], words: readonly string[] | null, isWhole: boolean): string {
  if (!words) return ids.join(" ");
  const pieces = ids.map((id) => words[id] ?? "").filter((piece) => BYTE.test(piece) || !MARK.test(piece));
  const apart = !words.some((word) => word.includes("▁"));
  const text = apart ? pieces.map((piece) => `▁${piece}`).join("") : pieces.join("");
  const bytes = Uint8Array.from(chunks(text));
  const made = new TextDecoder().decode(bytes).replaceAll("▁", " ").replaceAll("⏎", "\n");
  return isWhole ? made.replace(/^ /, "") : made;
}

/** The bytes of a text in which some are written as <0xE2>. */
function* chunks(text: string): Generator<number> {
  for (const part of text.split(/(<0x[0-9A-F]{2}>)/)) {
    const byte = BYTE.exec(part);
    if (byte) yield parseInt(byte[1]!, 16);
    else yield* new TextEncoder().encode(part);
  }
}
