// The live page of a run: asks the server for the state, and draws it. No dependencies.

const PAUSE = 2000; // Milliseconds between two questions while the run goes on; `MOST_PAUSE` of state.py.
const PAUSE_AT_REST = 5000;
const HEIGHT = 190;
const MARGIN = { left: 54, right: 10, top: 10, bottom: 24 };
const by = (id) => document.getElementById(id);

let state = null;
let received = 0;
let cursor = null; // The step that all charts are read at; null for the newest.

// --- text ---

function figure(x, digits = 4) {
  if (x === null || x === undefined) return "–";
  if (x !== 0 && (Math.abs(x) < 1e-3 || Math.abs(x) >= 1e6)) return x.toExponential(digits - 2).replace("e+", "e");
  return Number.isInteger(x) ? x.toLocaleString("en") : String(Number(x.toPrecision(digits)));
}

function time(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const s = Math.round(seconds);
  const [h, m] = [Math.floor(s / 3600), Math.floor(s / 60) % 60];
  return h ? `${h} h ${m} min` : m ? `${m} min ${s % 60} s` : `${s} s`;
}

function many(x) {
  if (x === null || x === undefined) return "–";
  return x >= 1e6 ? `${(x / 1e6).toPrecision(3)}M` : x >= 1e3 ? `${(x / 1e3).toPrecision(3)}k` : x.toPrecision(3);
}

const words = (name) => name.replaceAll("_", " ").replace(/^bleu.*/, "BLEU").replace(/^chrf/, "chrF");

// --- elements ---

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

function list(pairs) {
  return pairs.flatMap(([name, value]) => [make("dt", {}, name), make("dd", { dir: "auto" }, value)]);
}

// --- charts ---

/** Nice numbers from low to high, about n of them. */
function ticks(low, high, n) {
  const rough = (high - low) / n || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((one) => one >= rough);
  const found = [];
  for (let x = Math.ceil(low / step) * step; x <= high + step / 1e6; x += step) found.push(Number(x.toPrecision(12)));
  return found;
}

function powers(low, high) {
  const all = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
    for (const k of [1, 2, 5]) if (k * 10 ** e >= low && k * 10 ** e <= high) all.push(Number((k * 10 ** e).toPrecision(12)));
  return all.length > 7 ? all.filter((x) => Number.isInteger(Math.round(Math.log10(x) * 1e9) / 1e9)) : all;
}

/** A range around all values. What cannot be negative does not begin below 0. */
function range(values, log) {
  const all = values.filter((y) => y !== null && (!log || y > 0)).sort((a, b) => a - b);
  if (!all.length) return [0, 1];
  const [low, high] = [all[0], all[all.length - 1]];
  const around = low === high ? Math.abs(low) / 10 || 1 : (high - low) * 0.05;
  if (log) return low === high ? [low / 2, high * 2] : [low, high];
  return [low >= 0 ? Math.max(0, low - around) : low - around, high + around];
}

function draw(chart) {
  const width = Math.max(200, chart.box.clientWidth);
  const log = chart.log?.() ?? false;
  const last = Math.max(1, ...chart.series.map((one) => one.points[one.points.length - 1]?.[0] ?? 1));
  const [low, high] = range(chart.series.flatMap((one) => one.points.map((p) => p[1])), log);
  const scale = log ? Math.log : (y) => y;
  const right = width - MARGIN.right;
  const bottom = HEIGHT - MARGIN.bottom;
  const x = (step) => MARGIN.left + (step / last) * (right - MARGIN.left);
  const y = (value) => bottom - ((scale(value) - scale(low)) / (scale(high) - scale(low))) * (bottom - MARGIN.top);
  const parts = [];
  for (const tick of log ? powers(low, high) : ticks(low, high, 5)) {
    parts.push(svg("line", { class: "grid", x1: MARGIN.left, x2: right, y1: y(tick), y2: y(tick) }));
    parts.push(svg("text", { x: MARGIN.left - 6, y: y(tick) + 4, "text-anchor": "end" }, figure(tick, 3)));
  }
  for (const tick of ticks(0, last, width < 420 ? 3 : 5))
    parts.push(svg("text", { x: x(tick), y: HEIGHT - 6, "text-anchor": tick === 0 ? "start" : x(tick) > right - 20 ? "end" : "middle" }, many0(tick)));
  for (const one of chart.series) {
    let path = "";
    for (const [step, value] of one.points) {
      const drawn = value !== null && (!log || value > 0);
      if (drawn) path += `${path && !path.endsWith(" ") ? "L" : "M"}${x(step).toFixed(1)},${y(value).toFixed(1)}`;
      else if (path) path += " ";
      if (drawn && one.dots) parts.push(svg("circle", { cx: x(step), cy: y(value), r: one.best?.(step) ? 5 : 3, class: one.best?.(step) ? "best" : "" }));
    }
    if (path) parts.push(svg("path", { d: path, class: one.look }));
  }
  if (cursor !== null && cursor <= last) parts.push(svg("line", { class: "cursor", x1: x(cursor), x2: x(cursor), y1: MARGIN.top, y2: bottom }));
  chart.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  chart.svg.setAttribute("height", HEIGHT);
  chart.svg.replaceChildren(...parts);
  chart.stepAt = (px) => Math.round(((px - MARGIN.left) / (right - MARGIN.left)) * last);
  const told = read(chart);
  chart.reading.textContent = told;
  chart.svg.setAttribute("aria-label", `${chart.title} by step. ${told}`);
}

const many0 = (x) => (x >= 1e4 ? many(x) : x.toLocaleString("en"));

/** The values of a chart at the cursor, or the newest. */
function read(chart) {
  const found = chart.series.filter((one) => one.name).map((one) => {
    const points = one.points.filter((p) => p[1] !== null);
    if (!points.length) return null;
    const near = cursor === null ? points[points.length - 1] : points.reduce((a, b) => (Math.abs(b[0] - cursor) < Math.abs(a[0] - cursor) ? b : a));
    return `${one.name} ${figure(near[1])} at step ${near[0].toLocaleString("en")}`;
  });
  return found.filter(Boolean).join(", ");
}

const charts = new Map();

function chartOf(title, keys) {
  const reading = make("p", { class: "reading" });
  const box = make("figure", {}, make("figcaption", {}, make("h3", {}, title), ...keys.map(([look, name]) => make("span", {}, make("span", { class: `key ${look}` }), name))), reading);
  const picture = svg("svg", { role: "img" });
  box.append(picture);
  const chart = { title, box, reading, svg: picture, series: [] };
  const move = (event) => read_at(chart.stepAt?.(event.clientX - picture.getBoundingClientRect().left));
  picture.addEventListener("pointermove", move);
  picture.addEventListener("pointerdown", move);
  picture.addEventListener("pointerleave", () => read_at(null));
  return chart;
}

function read_at(step) {
  const last = Number(by("cursor").max);
  cursor = step === null || step === undefined ? null : Math.min(last, Math.max(0, step));
  by("cursor").value = cursor ?? last;
  by("at").textContent = (cursor ?? last).toLocaleString("en");
  for (const chart of charts.values()) draw(chart);
}

function plan() {
  const { curves, evaluations } = state;
  const line = (name) => curves.step.map((step, i) => [step, curves[name][i]]);
  const judged = (of) => evaluations.map((one) => [one.step, of(one)]);
  const has = (points) => points.some((p) => p[1] !== null && p[1] !== undefined);
  const best = (step) => evaluations.findLast((one) => one.best)?.step === step;
  const valid = judged((one) => one.loss ?? one.scores.loss ?? null);
  const found = [["Loss", [
    { look: "faint", points: line("loss") },
    { look: "", name: "training", points: line("smooth") },
    ...(has(valid) ? [{ look: "valid", name: "validation", points: valid, dots: true, best }] : []),
  ]]];
  for (const name of new Set(evaluations.flatMap((one) => Object.keys(one.scores))))
    if (name !== "loss") found.push([words(name), [{ look: "valid", name: "validation", points: judged((one) => one.scores[name] ?? null), dots: true, best }]]);
  for (const [name, title] of [["lr", "Learning rate"], ["speed", `Speed, ${state.unit} a second`], ["grad_norm", "Norm of the gradient"]])
    if (has(line(name))) found.push([title, [{ look: "", name: title.split(",")[0].toLowerCase(), points: line(name) }]]);
  return curves.step.length || evaluations.length ? found : [];
}

function showCharts() {
  const wanted = plan();
  for (const [title, chart] of charts) if (!wanted.some((one) => one[0] === title)) { chart.box.remove(); charts.delete(title); }
  for (const [i, [title, series]] of wanted.entries()) {
    const keys = title === "Loss" ? [["", "training"], ["valid", "validation"]] : [];
    if (!charts.has(title)) charts.set(title, chartOf(title, keys));
    const chart = charts.get(title);
    chart.series = series;
    if (/^(Loss|Norm)/.test(title)) chart.log = () => by("log").checked;
    if (by("charts").children[i] !== chart.box) by("charts").insertBefore(chart.box, by("charts").children[i] ?? null);
  }
  by("no-curves").hidden = wanted.length > 0;
  const last = Math.max(0, ...state.curves.step.slice(-1), ...state.evaluations.slice(-1).map((one) => one.step));
  by("cursor").max = last;
  by("cursor").disabled = last === 0;
  read_at(cursor);
}

// --- the rest ---

function showStatus(kind, text) {
  const old = by("status").textContent;
  const told = `${kind === "lost" ? "no connection" : kind}${text}`;
  if (old === told) return; // A live region speaks only of changes.
  by("status").replaceChildren(make("span", { class: "chip", "data-kind": kind }, kind === "lost" ? "no connection" : kind), " ", text);
}

function showTiles() {
  const { now, evaluations, unit } = state;
  const main = evaluations.length ? Object.keys(evaluations[evaluations.length - 1].scores)[0] : null;
  const best = evaluations.findLast((one) => one.best);
  const tiles = [
    ["Step", now.step === undefined ? "–" : now.step.toLocaleString("en") + (state.limit ? ` of ${state.limit.toLocaleString("en")}` : "")],
    ["Epoch", figure(now.epoch)],
    ["Training loss", figure(now.loss)],
    ...(main ? [[`${words(main)}, newest`, figure(evaluations[evaluations.length - 1].scores[main])]] : []),
    ...(main && best ? [[`${words(main)}, best, step ${best.step.toLocaleString("en")}`, figure(best.scores[main])]] : []),
    ["Learning rate", figure(now.lr, 3)],
    ["Speed", now.speed ? `${many(now.speed)} ${unit}/s` : "–"],
    ["Time so far", time(now.seconds)],
    ["Time left", now.progress >= 1 || !["running", "paused"].includes(state.status) ? "–" : `about ${time(now.left)}`],
  ];
  by("tiles").replaceChildren(...tiles.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  by("progress").value = now.progress ?? 0;
  by("share").textContent = now.progress === undefined ? "" : `${Math.floor(100 * now.progress)}%`;
}

function showEvaluations() {
  const rows = [...state.evaluations].reverse();
  by("no-evaluations").hidden = rows.length > 0;
  by("evaluations").hidden = rows.length === 0;
  const names = [...new Set(rows.flatMap((one) => Object.keys(one.scores)))];
  const best = rows.find((one) => one.best)?.step;
  const head = make("thead", {}, make("tr", {}, ...["step", ...names.map(words), "checkpoint"].map((name) => make("th", { scope: "col" }, name))));
  const body = rows.map((one) => make("tr", { class: one.step === best ? "best" : "" },
    make("td", {}, one.step.toLocaleString("en")), ...names.map((name) => make("td", {}, figure(one.scores[name]))),
    make("td", {}, one.step === best ? "best" : one.best ? "best so far" : "")));
  by("evaluations").replaceChildren(make("table", {}, head, make("tbody", {}, ...body)));
}

function showRest() {
  by("name").textContent = state.name;
  by("folder").textContent = state.folder;
  by("problem").hidden = !state.problem;
  by("problem").textContent = state.problem;
  by("sampled").textContent = state.samples.length ? `What the network says at step ${state.sampled.toLocaleString("en")}.` : "None yet.";
  by("samples").replaceChildren(...state.samples.map((one) => {
    const pairs = Object.entries(one).filter(([name, text]) => text || name === "output");
    return make("li", {}, make("dl", {}, ...list(pairs.map(([name, text]) => [name, text || "(nothing)"]))));
  }));
  by("recipe").replaceChildren(...list(state.recipe));
  by("events").replaceChildren(...state.events.map((text) => make("li", {}, text)));
  by("whole").textContent = JSON.stringify(state.whole, null, 2);
}

function showAge() {
  if (!state) return;
  const age = state.age === null ? null : state.age + (performance.now() - received) / 1000;
  const quiet = state.status === "running" && age > 15 ? `no new line for ${time(Math.round(age / 5) * 5)}: it may be evaluating or saving` : "";
  showStatus(state.status, state.text || quiet);
  const score = state.now.progress === undefined ? "" : `${Math.floor(100 * state.now.progress)}% `;
  document.title = `${["running", "paused"].includes(state.status) ? score : ""}${state.status}: ${state.name}`;
}

async function ask() {
  let pause = PAUSE;
  try {
    const answer = await fetch(`/state?seen=${encodeURIComponent(state?.version ?? "")}`);
    if (answer.status === 200) {
      state = await answer.json();
      received = performance.now();
      showTiles();
      showCharts();
      showEvaluations();
      showRest();
    } else if (!answer.ok) throw new Error(String(answer.status));
    showAge();
    if (["finished", "stopped"].includes(state.status) && state.age > 60) pause = PAUSE_AT_REST;
  } catch {
    if (state && ["finished", "stopped"].includes(state.status)) showStatus(state.status, `${state.text}; the server of this page has ended`);
    else showStatus("lost", `The server of this page has ended; this is the run as it was. clearhead watch ${state?.folder ?? "RUN"} shows it again.`);
  }
  setTimeout(() => (document.hidden ? document.addEventListener("visibilitychange", ask, { once: true }) : ask()), pause);
}

by("cursor").addEventListener("input", (event) => read_at(Number(event.target.value)));
by("log").addEventListener("change", () => read_at(cursor));
new ResizeObserver(() => { for (const chart of charts.values()) draw(chart); }).observe(by("charts"));
ask();
