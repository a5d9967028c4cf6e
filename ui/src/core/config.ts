/** What follows from a config. */

import type { StackConfig } from "./protocol";

export function headWidth(stack: StackConfig): number {
  return stack.d_head ?? stack.d_model / stack.n_heads;
}
