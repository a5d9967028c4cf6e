/** One Tab stop for many buttons: arrows, Home and End move among them (WAI-ARIA, roving tabindex). */

import { moveOf } from "../draw/moves";

/** A Svelte action. The stop is the button that was focused last, else the pressed or current one, else the first. */
export function roving(node: HTMLElement): { destroy(): void } {
  const buttons = (): HTMLButtonElement[] => [...node.querySelectorAll<HTMLButtonElement>("button:not(:disabled)")];
  let last: HTMLButtonElement | null = null;

  function settle(): void {
    const all = buttons();
    const chosen = (one: HTMLButtonElement): boolean =>
      one.matches('[aria-pressed="true"], [aria-current]:not([aria-current="false"])');
    const stop = last && all.includes(last) ? last : (all.find(chosen) ?? all[0]);
    for (const one of all) {
      const index = one === stop ? 0 : -1;
      if (one.tabIndex !== index) one.tabIndex = index;
    }
  }
  function onfocus({ target }: FocusEvent): void {
    if (target instanceof HTMLButtonElement) last = target;
    settle();
  }
  function onkey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const all = buttons(), at = all.indexOf(event.target as HTMLButtonElement), move = at < 0 ? null : moveOf(event);
    if (move) all[Math.max(0, Math.min(at + move[0] + move[1], all.length - 1))]?.focus();
  }

  settle();
  const observer = new MutationObserver(settle);
  observer.observe(node, { childList: true, subtree: true, attributeFilter: ["aria-pressed", "aria-current", "disabled"] });
  node.addEventListener("focusin", onfocus);
  node.addEventListener("keydown", onkey);
  return {
    destroy() {
      observer.disconnect();
      node.removeEventListener("focusin", onfocus);
      node.removeEventListener("keydown", onkey);
    },
  };
}
