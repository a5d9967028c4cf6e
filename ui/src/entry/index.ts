/** The one module of the explorer, for its four hosts: the server's page, notebooks (anywidget), and exported files. */

import { mount, unmount } from "svelte";
import App from "../App.svelte";
import type { Host } from "../core/protocol";
import { HttpHost } from "../host/http";
import { WidgetHost, type WidgetModel } from "../host/widget";
import "../theme.css";
import "../app.css";

/** The page of `clearhead explore`: its state is in the fragment of the URL. */
export function startPage(target: HTMLElement): void {
  show(target, new HttpHost(), true);
}

/** An exported file hands over its own host. */
export function startExport(target: HTMLElement, host: Host): void {
  show(target, host, true);
}

function show(target: HTMLElement, host: Host, ownsPage: boolean): () => void {
  const app = mount(App, { target, props: { host, ownsPage } });
  return () => void unmount(app);
}

/** anywidget's front-end module. */
export default {
  render({ model, el }: { model: WidgetModel; el: HTMLElement }): () => void {
    const host = new WidgetHost(model);
    const end = show(el, host, false);
    return () => {
      end();
      host.close();
    };
  },
};
