/** Numbers as people write them: 4,096 and 4.096, −0,25, 1/3, 33 %, 1.8e-7, √2, 124 million weights. */

/** Groups of three digits between equal marks, and decimals after the other mark. */
const GROUPED = /^[1-9]\d{0,2}(?:([ '.,])\d{3})(?:\1\d{3})*(?:(?!\1)[.,]\d*)?$/;
const PLAIN = /^(?:\d+[.,]?\d*|[.,]\d+)(?:e[+-]?\d+)?$/i;

/** Words for a factor behind a number. Another word there is a unit, and says nothing of its size. */
const FACTORS: [RegExp, number][] = [
  [/^(?:%|percent|per cent|prozent|pour ?cent|パーセント)$/i, 0.01], [/^(?:[kK]|thousand|[Tt]ausend|mille|千)(?=$|[^\p{L}])/u, 1e3], [/^(?:M|[Mm]illion\w*|[Mm]io\.?|百万)(?=$|[^\p{L}])/u, 1e6],
];
const UNIT = /^(.*?[\d.,])(?: ?(%|[kM]\b.*|[\p{Lo}ー]+)| (\p{L}[^\d]*)|°)?$/u;

/** Every number that a text may mean, with marks of thousands first: "4,096" is 4096 and 4.096. Empty if it is none. */
export function readings(text: string): number[] {
  const plain = text.replace(/(\d)(?=[¼-¾⅐-⅞])/g, "$1 ").normalize("NFKC").replace(/[‐−–—]/g, "-").replace(/⁄/g, "/").replace(/[’_]/g, "'").replace(/\s+/g, " ")
    .replace(/ ?[×·*] ?10 ?\^? ?([+-]?\d+)/, "e$1").replace(/\b10(?:\^|(?=-))([+-]?\d+)/, "1e$1").trim();
  const [, sign, rest] = /^[=≈~∼≃]? ?([+-]?) ?(.*)$/.exec(plain)!, [, body = "", close, word] = UNIT.exec(rest!) ?? [], unit = close ?? word ?? "";
  const [over, under = [1], ...more] = body.split("/").map((part) => values(part.trim()));
  if (!over || more.length > 0) return [];
  const scale = (sign === "-" ? -1 : 1) * (FACTORS.find(([form]) => form.test(unit))?.[1] ?? 1);
  const found = over.flatMap((a) => under.map((b) => (scale * a) / b));
  return [...new Set(found.filter(Number.isFinite))];
}

/** The number that a text means in a language, for which "4,096" is a decimal or has thousands; null if it is none. */
export function readNumber(text: string, language: string): number | null {
  const found = readings(text), hasThousands = text.includes(",") && (0.5).toLocaleString(language)[1] === ".";
  return found.at(hasThousands ? 0 : -1) ?? null;
}

/** The values of digits without a sign. */
function values(part: string): number[] {
  const isRoot = part.startsWith("√"), digits = isRoot ? part.slice(1).trim() : part, found: number[] = [];
  const mark = GROUPED.exec(digits)?.[1];
  if (mark) found.push(Number(digits.replaceAll(mark, "").replace(",", ".")));
  if (PLAIN.test(digits)) found.push(Number(digits.replace(",", ".")));
  return isRoot ? found.map(Math.sqrt) : found;
}
