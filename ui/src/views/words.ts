/** Vectors as arrows. */

/** Two vectors and their sum in their own plane, the sum to the right: nothing of them is left out. */
export function triangleOf(base: ArrayLike<number>, sum: ArrayLike<number>): { middle: [number, number]; end: [number, number] } {
  let [along, all, total] = [0, 0, 0];
  for (let i = 0; i < sum.length; i++) [along, all, total] = [along + base[i]! * sum[i]!, all + base[i]! ** 2, total + sum[i]! ** 2];
  const long = Math.sqrt(total), right = long > 0 ? along / long : 0;
  return { middle: [right, Math.sqrt(Math.max(0, all - right * right))], end: [long, 0] };
}
