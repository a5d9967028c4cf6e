/** The regular expressions of tokenizers, which Oniguruma reads in Python, as JavaScript's. */

const CLASSES: Record<string, string> = {
  s: "\\p{White_Space}", S: "\\P{White_Space}", d: "\\p{Nd}", D: "\\P{Nd}",
  w: "[\\p{L}\\p{M}\\p{Nd}\\p{Pc}]", W: "[^\\p{L}\\p{M}\\p{Nd}\\p{Pc}]",
};
const ANCHORS: Record<string, string> = { "^": "(?:(?<![^])|(?<=\\n)(?=[^]))", $: "(?![^\\n])", ".": "[^\\n]" };
/** What has, or once may have, a meaning of its own in a pattern. */
const SPECIAL = /[!-/:-@[-^`{-~]/;

const made = new Map<string, RegExp>();

export function regex(pattern: string): RegExp {
  if (!made.has(pattern)) made.set(pattern, new RegExp(translated(pattern), "gv"));
  return made.get(pattern)!;
}

/** A pattern that finds a text as it is written. */
export function literal(text: string): RegExp {
  return new RegExp([...text].map(escaped).join(""), "gv");
}

export function escaped(char: string): string {
  return SPECIAL.test(char) ? `\\x${char.charCodeAt(0).toString(16)}` : char;
}

function translated(pattern: string): string {
  const chars = [...pattern];
  let at = 0, out = "";
  /** Whether each open group ignores case. */
  const groups = [false];
  while (at < chars.length) {
    const char = chars[at]!, ignores = groups.at(-1)!;
    if (char === "\\") out += escape();
    else if (char === "[") out += set();
    else if (char === "(") {
      const opens = /^\((\?i:|\?[:=!]|\?<[=!]|)/.exec(chars.slice(at, at + 4).join(""))![0];
      groups.push(ignores || opens === "(?i:");
      out += opens === "(?i:" || opens === "(" ? "(?:" : opens;
      at += opens.length;
    } else {
      if (char === ")") groups.pop();
      out += ANCHORS[char] ?? (ignores && /\p{L}/u.test(char) ? anyCase(char) : /[*+?(){},|]/.test(char) ? char : escaped(char));
      at++;
    }
  }
  return out;

  function escape(): string {
    const char = chars[at + 1]!;
    at += 2;
    if (char in CLASSES) return CLASSES[char]!;
    if (char !== "p" && char !== "P") return /[nrtfv]/.test(char) ? `\\${char}` : escaped(char);
    const end = chars.indexOf("}", at), name = chars.slice(at + 1, end).join("");
    at = end + 1;
    return property(char, name);
  }

  function set(): string {
    const open = chars[++at] === "^" ? (at++, "[^") : "[", sets: string[] = [];
    let inside = "", last = "";
    while (chars[at] !== "]") {
      const char = chars[at]!;
      if (char === "[") inside += set();
      else if (char === "&" && chars[at + 1] === "&") {
        sets.push(inside);
        inside = "";
        at += 2;
      }
      else if (char === "\\") inside += escape();
      else {
        const isRange = char === "-" && last !== "" && chars[at + 1] !== "]";
        inside += isRange ? "-" : escaped(char);
        at++;
      }
      last = /[[\\]/.test(char) && /[pPsSdDwW[]/.test(char === "[" ? char : chars[at - 1]!) ? "" : char;
    }
    at++;
    return `${open}${sets.length ? [...sets, inside].map((one) => `[${one}]`).join("&&") : inside}]`;
  }
}

function property(letter: string, name: string): string {
  const negates = name.startsWith("^"), bare = negates ? name.slice(1) : name, kind = negates === (letter === "p") ? "P" : "p";
  try {
    new RegExp(`\\p{${bare}}`, "v");
    return `\\${kind}{${bare}}`;
  } catch {
    return `\\${kind}{Script=${bare}}`;
  }
}

/** A letter with those that fold to it; the long s does. */
function anyCase(char: string): string {
  return `[${char.toLowerCase()}${char.toUpperCase()}${/s/i.test(char) ? "ſ" : ""}]`;
}
