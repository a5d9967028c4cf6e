/** Numbers and tokens as text. */

const minus = "−";

function signed(x: number, digits: string): string {
  return x < 0 && /[1-9]/.test(digits) ? minus + digits : digits;
}

/** A number in running text: "−0.53"; "0.004" and "0.000043" where the digits would show nothing of it; 0 for less than a millionth. */
export function num(x: number, digits = 2): string {
  if (!(Math.abs(x) >= 0)) return "–";
  const size = Math.abs(x);
  if (size === Infinity) return x < 0 ? `${minus}∞` : "∞";
  if (size >= 1e6) return signed(x, size.toExponential(1).replace("e+", "e"));
  if (size >= 0.5 * 10 ** -digits || size < 5e-7) return fixed(x, digits);
  return signed(x, size.toFixed(size < 1e-3 ? Math.min(6, 1 - Math.floor(Math.log10(size))) : 3).replace(/0+$/, ""));
}

/** A number in a column of others: always the same digits. */
export function fixed(x: number, digits = 2): string {
  return Number.isFinite(x) ? signed(x, Math.abs(x).toFixed(digits)) : num(x, digits);
}

/** A share of one: ".48", "1.00". */
export function share(x: number, digits = 2): string {
  return fixed(x, digits).replace(/^(−?)0\./, "$1.");
}

/** How far rounding may take a share out of 0 to 1. */
const ROUNDING = 1e-5;

/** "81 %", "0.4 %", "< 0.1 %", "99.7 %", in one piece; what is no share of one, such as a weight of 7, as a number. */
export function percent(p: number): string {
  if (!(p >= -ROUNDING && p <= 1 + ROUNDING)) return num(p);
  const hundred = Math.min(100, Math.max(0, p * 100));
  if (hundred > 0 && hundred < 0.1) return "<\u00a00.1\u00a0%";
  if (hundred > 99.9 && hundred < 100) return ">\u00a099.9\u00a0%";
  return `${fixed(hundred, (hundred > 0 && hundred < 1) || (hundred >= 99.5 && hundred < 100) ? 1 : 0)}\u00a0%`;
}

/** A Kullback-Leibler divergence in nats; never negative, so rounding errors below zero read as 0. */
export function kl(x: number): string {
  return num(Math.max(0, x), x < 0.1 ? 3 : 2);
}

const marks: Record<string, string> = { " ": "␣", "\n": "↵", "\r": "␍", "\t": "⇥", "\u00a0": "⍽" };

/** A token as it is shown: whitespace alone is made visible, and so are signs of control. */
export function tokenText(token: string): string {
  if (token === "") return "∅";
  return token.trim() === "" ? [...token].map((character) => marks[character] ?? "␣").join("") : token.replace(/\p{Cc}/gu, (sign) => marks[sign] ?? `<0x${sign.charCodeAt(0).toString(16)}>`);
}

/** A token as a word in a sentence or at a figure's edge: without the mark of the space before it. */
export function wordOf(token: string): string {
  return tokenText(token.replace(/^[▁Ġ ](?=.)/, ""));
}

/** A token of at most `length` characters; the full one belongs in its title. */
export function short(token: string, length = 10): string {
  const characters = [...tokenText(token)];
  return characters.length > length ? characters.slice(0, length - 1).join("") + "…" : characters.join("");
}
