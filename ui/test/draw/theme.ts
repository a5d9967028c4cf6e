/** The variables of theme.css, light and dark, as colours: for tests. */
import { readFileSync } from "node:fs";
import { parseColour, Palette, type ColourName, type Rgb } from "../../src/draw/colours";

const sheet = readFileSync(new URL("../../src/theme.css", import.meta.url), "utf8");
const rule = sheet.slice(sheet.indexOf(".clearhead {"), sheet.indexOf("}"));

function read(scheme: 0 | 1): Record<string, Rgb> {
  const pairs = [...rule.matchAll(/--(\w+): light-dark\((#\w+), (#\w+)\)/g)];
  const colours = Object.fromEntries(pairs.map((pair) => [pair[1]!, parseColour(pair[2 + scheme]!)]));
  return { ...colours, seq: colours["acc"]! };
}

export const flip = Number(/--flip: ([\d.]+)/.exec(rule)?.[1]);
export const css = sheet;
export const themes = [
  { name: "light", colours: read(0) },
  { name: "dark", colours: read(1) },
].map((theme) => ({ ...theme, palette: new Palette(theme.colours as Record<ColourName, Rgb>) }));
