/** Of many numbers: the largest, and the log of the sum of their exponentials. */

/** The places of the n largest, the largest first. */
export function topIndices(data: ArrayLike<number>, n: number): number[] {
  const top: number[] = [];
  for (let i = 0; i < data.length; i++) {
    if (top.length === n && !(data[i]! > data[top[n - 1]!]!)) continue;
    let at = top.length;
    while (at > 0 && data[top[at - 1]!]! < data[i]!) at -= 1;
    top.splice(at, 0, i);
    if (top.length > n) top.pop();
  }
  return top;
}

export function logSumExp(data: ArrayLike<number>): number {
  let most = -Infinity, sum = 0;
  for (let i = 0; i < data.length; i++) most = Math.max(most, data[i]!);
  for (let i = 0; i < data.length; i++) sum += Math.exp(data[i]! - most);
  return most + Math.log(sum);
}
