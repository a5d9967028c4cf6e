/** The one module of the explorer, for its four hosts: the server's page, notebooks (anywidget), and exported files. */

import { mount, unmount } from "svelte";
import App from "../App.svelte";
import { messageOf } from "../core/errors";
import type { Host } from "../core/host";
import Exercises from "../exercises/Exercises.svelte";
import { open } from "../exercises/opened";
import { chooseLanguage } from "../i18n/index.svelte";
import { BakedHost } from "../host/baked";
import { answerInBackground } from "../host/baked/background";
import { HttpHost } from "../host/http";
import { keepKeys, WidgetHost, type WidgetModel } from "../host/widget";
import "../theme.css";
import "../app.css";

/** The page of `clearhead explore`: its state is in the fragment of the URL. `script` loads the script of a place. */
export function startPage(target: HTMLElement, script: NonNullable<Host["script"]>): void {
  show(target, new HttpHost(script), true);
}

/** An exported file: it begins in the state that it was saved in, unless its address says another. */
export function startExport(target: HTMLElement, state: string): void {
  if (!location.hash && state) history.replaceState(null, "", state);
  target.replaceChildren();
  show(target, new BakedHost(inPage, document.querySelector("script[type=module]")?.textContent), true);
}

/** A page of exercises: the fragment names the one that it shows. */
export async function startExercises(target: HTMLElement): Promise<void> {
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

function show(target: HTMLElement, host: Host, ownsPage: boolean): () => void {
  if (ownsPage) document.body.style.margin = "0";
  const app = mount(App, { target, props: { host, ownsPage } });
  return () => void unmount(app);
}

/** anywidget's front-end module. */
export default {
  render({ model, el }: { model: WidgetModel; el: HTMLElement }): () => void {
    const host = new WidgetHost(model);
    const end = show(el, host, false), free = keepKeys(el);
    return () => {
      end();
      free();
      host.close();
    };
  },
};

// The data of an exported file, whose only script this is. A worker of its page runs the same script.
const data = typeof document === "undefined" ? null : document.getElementById("clearhead-data");
if (data) startExport(document.getElementById("app") ?? document.body, data.dataset.state ?? "");
else if (typeof document !== "undefined" && document.getElementById("clearhead-exercises")) {
  const target = document.getElementById("app") ?? document.body;
  startExercises(target).catch((error: unknown) => (target.textContent = messageOf(error)));
} else if ("WorkerGlobalScope" in globalThis) {
  answerInBackground(globalThis as never, (find) => new BakedHost(find));
}
