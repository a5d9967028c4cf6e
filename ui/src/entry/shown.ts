/** Puts a page into an element. */

import { mount, unmount } from "svelte";
import App from "../App.svelte";
import type { Host } from "../core/host";
import "../theme.css";
import "../app.css";

/** Returns how to take it away. */
export function show(target: HTMLElement, host: Host, ownsPage: boolean): () => void {
  if (ownsPage) document.body.style.margin = "0";
  const app = mount(App, { target, props: { host, ownsPage } });
  return () => void unmount(app);
}
