/** Products with a matrix of parameters, whether it is of floats or rounded. */

import { axisLength, type Floats } from "../core/tensor";
import { dotRows, rows, type Rows } from "./products";
import type { Rounded } from "./rounded/rounded";

/** out[i, j] = x[i] . w[j, from : from + width] (+ bias[j]) for `n` rows of x and every row of w. */
export function byRows(out: Rows, x: Rows, w: Floats, n: number, part: { from: number; width: number }, bias?: Float32Array): void {
  // Only a file has rounded matrices: a page that a server answers goes without their code.
  if ("product" in w) (w as Rounded).product(out, x, n, part.from, part.width, bias);
  else dotRows(out, x, rows(w.data, axisLength(w, 1), part.from), n, axisLength(w, 0), part.width, bias);
}
