/** Mounting a component in jsdom, which has no canvas and no media queries. */
import { flushSync, unmount } from "svelte";
import { vi } from "vitest";

export const page = document.createElement("div");
let stop: () => void = () => undefined;

/** `start` mounts a component in the target it is given. */
export function show(start: (target: HTMLElement) => Record<string, unknown>): void {
  vi.stubGlobal("matchMedia", () => ({ addEventListener: () => undefined, removeEventListener: () => undefined }));
  vi.stubGlobal("ResizeObserver", class { observe(): void {} unobserve(): void {} disconnect(): void {} });
  HTMLCanvasElement.prototype.getContext = () => null;
  page.className = "clearhead";
  document.body.append(page);
  const app = start(page);
  flushSync();
  stop = () => void unmount(app);
}

export function clear(): void {
  stop();
  stop = () => undefined;
  page.remove();
  vi.unstubAllGlobals();
}

/** A key where the focus is. */
export async function press(key: string): Promise<void> {
  const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true });
  (document.activeElement ?? page).dispatchEvent(event);
  flushSync();
  await Promise.resolve();
  await Promise.resolve();
}
