/** file.js: the only script of an exported file and of a page of exercises, which also answers what a server would. */

import { mount } from "svelte";
import { messageOf } from "../core/errors";
import Exercises from "../exercises/Exercises.svelte";
import { open } from "../exercises/opened";
import { chooseLanguage } from "../i18n/index.svelte";
import { BakedHost } from "../host/baked";
import { answerInBackground } from "../host/baked/background";
import { show } from "./shown";

/** An exported file: it begins in the state that it was saved in, unless its address says another. */
function startExport(target: HTMLElement, state: string): void {
  if (!location.hash && state) history.replaceState(null, "", state);
  target.replaceChildren();
  show(target, new BakedHost(inPage, document.querySelector("script[type=module]:not([id])")?.textContent, (name) => document.getElementById(`clearhead-${name}`)?.remove()), true);
}

/** A page of exercises: the fragment names the one that it shows. */
async function startExercises(target: HTMLElement): Promise<void> {
  const opened = await open(inPage), [host] = opened.hosts.values();
  if (host) await chooseLanguage(host, (await host.ask("about", {})).json);
  target.replaceChildren();
  document.body.style.margin = "0";
  mount(Exercises, { target, props: { opened } });
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
  else if (document.getElementById("clearhead-exercises")) startExercises(target).catch((error: unknown) => (target.textContent = messageOf(error)));
}
