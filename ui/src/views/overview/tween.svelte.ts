/** Numbers that go to those wanted in a third of a second; at once where the system asks for no motion. */
import { untrack } from "svelte";

export function tween(wanted: () => readonly number[]): { readonly current: readonly number[] } {
  let current = $state.raw(untrack(wanted));
  $effect(() => {
    const from = untrack(() => current), to = wanted(), start = performance.now();
    if (from.length !== to.length || to.every((x, i) => x === from[i]) || matchMedia("(prefers-reduced-motion: reduce)").matches) return void (current = to);
    let frame = requestAnimationFrame(function step(now) {
      const k = Math.max(0, Math.min(1, (now - start) / 340)), share = 1 - (1 - k) ** 3;
      current = k < 1 ? to.map((x, i) => from[i]! + (x - from[i]!) * share) : to;
      if (k < 1) frame = requestAnimationFrame(step);
    });
    return () => cancelAnimationFrame(frame);
  });
  return { get current() { return current; } };
}
