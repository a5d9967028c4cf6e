/** file.js: the script of an exported file, which also answers what a server would. */

import { BakedHost } from "../host/baked";
import { answerInBackground } from "../host/baked/background";
import { show } from "./shown";

/** An exported file: it begins in the state that it was saved in, unless its address says another. */
function startExport(target: HTMLElement, state: string): void {
  if (!location.hash && state) history.replaceState(null, "", state);
  target.replaceChildren();
  show(target, new BakedHost(inPage, document.querySelector("script[type=module]:not([id])")?.textContent, (name) => document.getElementById(`clearhead-${name}`)?.remove()), true);
}

/** A part of an exported file. */
function inPage(name: string): string | null {
  return document.getElementById(`clearhead-${name}`)?.textContent ?? null;
}

// A worker of the page runs the same script.
if (typeof document === "undefined") {
  if ("WorkerGlobalScope" in globalThis) answerInBackground(globalThis as never, (find) => new BakedHost(find));
} else {
  const data = document.getElementById("clearhead-data"), target = document.getElementById("app") ?? document.body;
  if (data) startExport(target, data.dataset.state ?? "");
}
