/** Draws the lengths as a heat map: a row for each block, a column for each token. */

const CELL = 30, LEFT = 200, TOP = 60;

export function draw(element, { json: { tokens, lengths } }) {
  for (const [stack, names] of Object.entries(tokens)) {
    const rows = Object.entries(lengths).filter(([at]) => at.startsWith(`${stack}.`));
    const most = Math.max(...rows.flatMap(([, row]) => row));
    const picture = add(element, "svg", { width: LEFT + CELL * names.length, height: TOP + CELL * rows.length, role: "img" });
    names.forEach((name, t) => add(picture, "text", { x: LEFT + CELL * t, y: TOP - 6, "font-size": 11, fill: "currentColor" }, name));
    rows.forEach(([at, row], y) => {
      add(picture, "text", { x: 0, y: TOP + CELL * (y + 0.6), "font-size": 11, fill: "currentColor" }, at);
      row.forEach((length, t) => {
        const place = { x: LEFT + CELL * t, y: TOP + CELL * y, width: CELL - 2, height: CELL - 2 };
        const cell = add(picture, "rect", { ...place, fill: "steelblue", "fill-opacity": length / most });
        add(cell, "title", {}, `${at}[t=${t}]: ${length.toFixed(2)}`);
      });
    });
  }
}

function add(parent, name, attributes, text = "") {
  const child = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) child.setAttribute(key, value);
  child.textContent = text;
  return parent.appendChild(child);
}
