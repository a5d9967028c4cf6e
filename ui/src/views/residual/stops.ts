/** What each part adds to the residual stream of one token. */

import { cosine, length } from "../../core/vectors";
import type { Join } from "../norm/joins";

/** One addition, by lengths. */
export interface Measured {
  join: Join;
  stream: number;
  adds: number;
  /** Of what is added to the stream. */
  cosine: number;
  sum: number;
  /** What the next part reads: the sum, or its norm. */
  after: number;
}

export function measured(join: Join, x: ArrayLike<number>, f: ArrayLike<number>, after: ArrayLike<number>): Measured {
  const sum = Float64Array.from(x, (value, i) => value + f[i]!);
  return { join, stream: length(x), adds: length(f), cosine: cosine(x, f), sum: length(sum), after: length(after) };
}
