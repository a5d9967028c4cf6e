/** The token that a view is about: at the chosen query of the chosen stack. */

import type { StackName } from "../core/protocol";
import { textsOf, tokensOf, type Explorer } from "../parts/kit";

export interface Chosen { t: number; name: string; names: string[] }

export function chosen(app: Explorer): Chosen {
  const names = tokenNames(app, app.page.stack);
  const t = Math.max(0, Math.min(app.page.query, names.length - 1));
  return { t, name: names[t] ?? "", names };
}

function tokenNames(app: Explorer, stack: StackName): string[] {
  return textsOf(tokensOf(app, stack));
}
