/** exercises.js: the script of a page of exercises, which answers what a server would and judges. */

import { mount } from "svelte";
import { messageOf } from "../core/errors";
import Exercises from "../exercises/Exercises.svelte";
import { open } from "../exercises/opened";
import { chooseLanguage } from "../i18n/index.svelte";
import "../theme.css";
import "../app.css";

/** The fragment names the exercise that is shown. */
async function start(target: HTMLElement): Promise<void> {
  const opened = await open((name) => document.getElementById(`clearhead-${name}`)?.textContent ?? null), [host] = opened.hosts.values();
  if (host) await chooseLanguage(host, (await host.ask("about", {})).json);
  target.replaceChildren();
  document.body.style.margin = "0";
  mount(Exercises, { target, props: { opened } });
}

const target = document.getElementById("app") ?? document.body;
start(target).catch((error: unknown) => (target.textContent = messageOf(error)));
