/** What a vector says in words. */

import type { StackName } from "../core/protocol";
import { wordOf, type Explorer, type Run } from "../parts/kit";

/** Words whose rows of the token table point most as a vector does, and the cosine of the first. */
interface Near { words: string; cosine: number }

/** Those of each vector; null where the host cannot say. */
export async function wordsOf(app: Explorer, run: Run, stack: StackName, vectors: readonly ArrayLike<number>[], k: number, signal: AbortSignal): Promise<Near[] | null> {
  const reads = run.plan.config[stack]?.input.kind;
  if (!app.about.answers.includes("neighbours") || reads !== "tokens") return null;
  return Promise.all(vectors.map(async (vector) => {
    const { json } = await run.host.ask("neighbours", { run: run.request, stack, of: { numbers: Array.from(vector) }, k }, signal);
    return { words: json.ids.map((id) => wordOf(json.words[id] ?? `#${id}`)).join(", "), cosine: json.cosines[0] ?? 0 };
  }));
}

/** Two vectors and their sum in their own plane, the sum to the right: nothing of them is left out. */
export function triangleOf(base: ArrayLike<number>, sum: ArrayLike<number>): { middle: [number, number]; end: [number, number] } {
  let [along, all, total] = [0, 0, 0];
  for (let i = 0; i < sum.length; i++) [along, all, total] = [along + base[i]! * sum[i]!, all + base[i]! ** 2, total + sum[i]! ** 2];
  const long = Math.sqrt(total), right = long > 0 ? along / long : 0;
  return { middle: [right, Math.sqrt(Math.max(0, all - right * right))], end: [long, 0] };
}
