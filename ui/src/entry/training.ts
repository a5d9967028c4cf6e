/** training.js: the only script of a page in which a model learns (clearhead_lab/learning_page.py). Its worker runs it too. */

import { mount } from "svelte";
import type { About } from "../core/protocol";
import { Parts } from "../host/baked/parts";
import { chooseLanguage } from "../i18n/index.svelte";
import { messageOf } from "../core/errors";
import { Learner } from "../training/learner.svelte";
import Train from "../training/Train.svelte";
import { trainInBackground, type Taught } from "../training/worker";
import "../theme.css";
import "../app.css";

async function start(target: HTMLElement): Promise<void> {
  const parts = new Parts((name) => document.getElementById(`clearhead-${name}`)?.textContent ?? null);
  const { json: lesson } = await parts.read<Taught>("training"), { json: texts } = await parts.read<Record<string, Record<string, string>>>("texts");
  const host = { ask: async (_: unknown, { language }: { language: string }) => ({ json: { texts: texts[language]! }, tensors: new Map() }) } as never;
  const languages = Object.keys(texts);
  await chooseLanguage(host, { languages } as About);
  target.replaceChildren();
  document.body.style.margin = "0";
  mount(Train, { target, props: { learner: new Learner(lesson, document.querySelector("script[type=module]")!.textContent!), languages, host } });
}

if (typeof document === "undefined") trainInBackground(globalThis as never);
else start(document.getElementById("app")!).catch((error: unknown) => (document.body.textContent = messageOf(error)));
