/** WGSL of the ops of a decoder: y = op(x0, x1, …; w0, w1, …) for the positions that are read, in float32.
 *
 * Every kernel has the numbers of positions (n), of all positions before and with them (l), and of those before (at).
 */

/** The length of an axis: fixed, of the positions that are read, or of all. */
export type Axis = number | "n" | "l";
export type Shape = readonly Axis[];

export interface Kernel {
  shape: Shape;
  code: string;
  /** How many groups of work items there are for the positions of a step. */
  groups(n: number, l: number): [x: number, y: number, z: number];
}

/** A vector, or a matrix of floats or of integers of 8 or 4 bits, four or eight to a word. */
export interface Weight { shape: readonly number[]; bits: 32 | 8 | 4 }

const THREADS = 64;
/** Work items that share a row: few, because each waits for the others. */
const LANES = 32;
/** Groups along x; more of them go along y. */
const ACROSS = 32768;
/** Stands for -Infinity, which WGSL does not have. */
const CLOSED = "-3e38";

export function axis(shape: Shape, i: number): Axis {
  return shape.at(i)!;
}

/** The size of a shape for some positions. */
export function counted(shape: Shape, n: number, l: number): number {
  return shape.reduce<number>((product, one) => product * (one === "n" ? n : one === "l" ? l : one), 1);
}

/** The size of a shape in WGSL. */
function expressed(shape: Shape): string {
  return shape.map((one) => (typeof one === "number" ? `${one}u` : `p.${one}`)).join(" * ") || "1u";
}

function header(inputs: readonly string[], type = "f32"): string {
  return [
    "struct P { n: u32, l: u32, at: u32 }", "@group(0) @binding(0) var<uniform> p: P;",
    `@group(0) @binding(1) var<storage, read_write> y: array<${type}>;`,
    ...inputs.map((type, i) => `@group(0) @binding(${i + 2}) var<storage, read> ${type.replace(":", ": array<")}>;`),
  ].join("\n");
}

/** One work item for each number: `body` sets y[i]. */
export function cells(shape: Shape, inputs: readonly string[], body: string, type = "f32"): Kernel {
  const code = `${header(inputs, type)}
@compute @workgroup_size(${THREADS}) fn main(@builtin(workgroup_id) g: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = (g.x + g.y * ${ACROSS}u) * ${THREADS}u + lane;
  if (i >= ${expressed(shape)}) { return; }
  ${body}
}`;
  return { shape, code, groups: (n, l) => [...across(Math.ceil(counted(shape, n, l) / THREADS)), 1] };
}

/** One group for each row: `body` has the row's start and its width; `sum(lane, x)` and `most(lane, x)` are over the group. */
function byRows(of: Shape, shape: Shape, inputs: readonly string[], body: string): Kernel {
  const code = `${header(inputs)}
var<workgroup> part: array<f32, ${LANES}>;
${reduced("sum", "all + part[i]")}
${reduced("most", "max(all, part[i])")}
@compute @workgroup_size(${LANES}) fn main(@builtin(workgroup_id) g: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = g.x; let width = ${expressed(of.slice(-1))}; let start = row * width;
  ${body}
}`;
  return { shape, code, groups: (n, l) => [counted(of.slice(0, -1), n, l), 1, 1] };
}

function reduced(name: string, pair: string): string {
  return `fn ${name}(lane: u32, x: f32) -> f32 {
  workgroupBarrier();
  part[lane] = x;
  workgroupBarrier();
  var all = part[0];
  for (var i = 1u; i < ${LANES}u; i++) { all = ${pair}; }
  return all;
}`;
}

function across(groups: number): [number, number] {
  return groups <= ACROSS ? [groups, 1] : [ACROSS, Math.ceil(groups / ACROSS)];
}

/** Rows of a matrix as columns, in words: work items side by side then read numbers side by side. */
export function turned(m: number, words: number): Kernel {
  return cells([m, words], ["x0:u32"], `y[i] = x0[(i % ${m}u) * ${words}u + i / ${m}u];`, "u32");
}

/** Rows of x for which the weights are read once. */
const TOGETHER = 4;

/** Products of rows with the rows of a matrix, which is turned; with `heads`, each head's rows with its own columns. One
 *  work item sums a whole row, so that none waits for another. Each integer is multiplied in float32; a row has one
 *  scale (8 bits), or one for each 32 numbers (4 bits). */
export function product(x: Shape, w: Weight, hasBias: boolean, heads = 1): Kernel {
  const [m] = w.shape as [number], width = axis(x, -1), { bits } = w, perWord = 32 / bits;
  if (typeof width !== "number" || width % Math.max(perWord, 4)) throw new Error(`rows of ${width} numbers in ${bits} bits`);
  const words = width / perWord, rows = expressed(heads > 1 ? x.slice(1, -1) : x.slice(0, -1));
  const inputs = [bits === 32 ? "x0:f32" : "x0:vec4f", bits === 32 ? "w0:f32" : "w0:u32", ...(bits < 32 ? ["s0:f32"] : []), ...(hasBias ? ["w1:f32"] : [])];
  const read = {
    32: "let a = w0[at];",
    8: "let a = vec4f(vec4i(vec4u(w0[at]) << vec4u(24u, 16u, 8u, 0u)) >> vec4u(24u));",
    4: `let a = four(w0[at]); let b = four(w0[at] >> 16u); let scale = s0[((g.z * ${words}u + k) / 4u) * ${m}u + j];`,
  }[bits];
  const term = (from: string): string => ({
    32: `a * x0[${from}]`, 8: `dot(a, x0[${from}])`, 4: `scale * (dot(a, x0[2u * (${from})]) + dot(b, x0[2u * (${from}) + 1u]))`,
  })[bits];
  const tile = (n: number): string => {
    const each = Array.from({ length: n }, (_, r) => r), type = n > 1 ? `vec${n}f` : "f32";
    const row = (r: number): string => (n > 1 ? `min(t + ${r}u, rows - 1u)` : "t"), own = (r: number): string => (n > 1 ? `sum[${r}]` : "sum");
    return `for (var t = 0u; t < rows; t += ${n}u) {
    var sum = ${type}();
    ${each.map((r) => `let r${r} = (g.z * rows + ${row(r)}) * ${words}u;`).join(" ")}
    for (var k = 0u; k < ${words}u; k++) {
      let at = (g.z * ${words}u + k) * ${m}u + j;
      ${read}
      sum += ${type}(${each.map((r) => term(`r${r} + k`)).join(", ")});
    }
    ${each.map((r) => `if (t + ${r}u < rows) { y[(g.z * rows + t + ${r}u) * ${m}u + j] = ${own(r)}${bits === 8 ? " * s0[j]" : ""}${hasBias ? " + w1[j]" : ""}; }`).join("\n    ")}
  }`;
  };
  const code = `${header(inputs)}
fn four(word: u32) -> vec4f { return vec4f(vec4i((vec4u(word) >> vec4u(0u, 4u, 8u, 12u)) & vec4u(15u)) - vec4i(8)); }
@compute @workgroup_size(${THREADS}) fn main(@builtin(workgroup_id) g: vec3u, @builtin(local_invocation_index) lane: u32) {
  let j = (g.x + g.y * ${ACROSS}u) * ${THREADS}u + lane; let rows = ${rows};
  if (j >= ${m}u) { return; }
  if (rows == 1u) { ${tile(1)} } else { ${tile(TOGETHER)} }
}`;
  return { shape: [...x.slice(0, -1), m], code, groups: () => [...across(Math.ceil(m / THREADS)), heads] };
}

/** Copies h n k behind the l - n positions of a memory of h `room` k. */
export function keep(x: Shape, room: number): Kernel {
  const width = axis(x, -1);
  const made = cells(x, ["x0:f32"], `let h = i / (p.n * ${width}u); y[(h * ${room}u + p.at) * ${width}u + i - h * p.n * ${width}u] = x0[i];`);
  return { ...made, shape: [x[0]!, "l", width] };
}

/** x0[h, t, k] · x1[h, s, k], or Σ_s x0[h, t, s] x1[h, s, k]. A memory has `room` rows for each head. */
export function pairs(a: Shape, b: Shape, turned: boolean, room: Axis): Kernel {
  const shape = [...a.slice(0, -1), axis(b, turned ? -2 : -1)], [, n, last] = shape.map((one) => expressed([one])), width = expressed([axis(a, -1)]);
  const each = expressed([room, axis(b, -1)]);
  const [left, right] = turned
    ? [`x0[(i / (${last})) * ${width} + c]`, `x1[h * ${each} + (i % (${last})) * ${width} + c]`]
    : [`x0[(i / (${last})) * ${width} + c]`, `x1[h * ${each} + c * ${last} + i % (${last})]`];
  return cells(shape, ["x0:f32", "x1:f32"], `let h = i / (${n} * ${last}); var sum = 0.0;
  for (var c = 0u; c < ${width}; c++) { sum += ${left} * ${right}; }
  y[i] = sum;`);
}

export function closed(shape: Shape, isCausal: boolean, window: number | null): Kernel {
  const [n, last] = [axis(shape, -2), axis(shape, -1)].map((one) => expressed([one]));
  const open = [...(isCausal ? ["s <= t"] : []), ...(window === null ? [] : [`abs(i32(s) - i32(t)) < ${window}`])].join(" && ") || "true";
  return cells(shape, ["x0:f32"], `let t = p.at + (i / ${last}) % ${n}; let s = i % ${last}; y[i] = select(${CLOSED}, x0[i], ${open});`);
}

export function softmax(shape: Shape): Kernel {
  return byRows(shape, shape, ["x0:f32"], `var top = ${CLOSED};
  for (var k = lane; k < width; k += ${LANES}u) { top = max(top, x0[start + k]); }
  top = most(lane, top);
  var total = 0.0;
  for (var k = lane; k < width; k += ${LANES}u) { total += exp(x0[start + k] - top); }
  total = sum(lane, total);
  for (var k = lane; k < width; k += ${LANES}u) { y[start + k] = exp(x0[start + k] - top) / total; }`);
}

/** The mean of each row, or with eps the inverse of its spread around a mean (x1) or 0. */
export function ofRows(shape: Shape, eps: number | null, hasMean: boolean): Kernel {
  const term = eps === null ? "x0[start + k]" : "d * d", d = `let d = x0[start + k]${hasMean ? " - x1[row]" : ""};`;
  return byRows(shape, [...shape.slice(0, -1), 1], ["x0:f32", ...(hasMean ? ["x1:f32"] : [])], `var all = 0.0;
  for (var k = lane; k < width; k += ${LANES}u) { ${eps === null ? "" : d} all += ${term}; }
  all = sum(lane, all) / f32(width);
  if (lane == 0u) { y[row] = ${eps === null ? "all" : `1.0 / sqrt(all + ${eps})`}; }`);
}

const ERF = `fn erf(x: f32) -> f32 {
  if (abs(x) > 4.0) { return sign(x); }
  var term = x; var all = x;
  for (var n = 1u; n < 64u && abs(term) > 1e-9 * abs(all); n++) { term *= 2.0 * x * x / f32(2u * n + 1u); all += term; }
  return 1.1283791670955126 * exp(-x * x) * all;
}`;

/** The exponents are limited, because WGSL has no infinity. */
const ACTIVATIONS: Readonly<Record<string, string>> = {
  relu: "max(x, 0.0)",
  gelu: "0.5 * x * (1.0 + erf(x * 0.7071067811865476))",
  gelu_tanh: "x / (1.0 + exp(min(-1.5957691216057308 * (x + 0.044715 * x * x * x), 80.0)))",
  quick_gelu: "x / (1.0 + exp(min(-1.702 * x, 80.0)))",
  silu: "x / (1.0 + exp(min(-x, 80.0)))",
  fall: "exp(min(x, 0.0)) - 1.0 - min(x, 0.0)",
  tanh: "tanh(clamp(x, -15.0, 15.0))",
  sigmoid: "1.0 / (1.0 + exp(min(-x, 80.0)))",
};

export function activation(shape: Shape, name: string): Kernel {
  const of = Object.hasOwn(ACTIVATIONS, name) ? ACTIVATIONS[name] : undefined;
  if (!of) throw new Error(`no WGSL for the activation "${name}"`);
  const made = cells(shape, ["x0:f32"], `let x = x0[i]; y[i] = ${of};`);
  return name === "gelu" ? { ...made, code: `${made.code}\n${ERF}` } : made;
}
