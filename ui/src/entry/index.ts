/** explorer.js: the page of the server, and the widget of notebooks (anywidget). */

import type { Host } from "../core/host";
import { HttpHost } from "../host/http";
import { keepKeys, WidgetHost, type WidgetModel } from "../host/widget";
import { show } from "./shown";

/** The page of `clearhead explore`: its state is in the fragment of the URL. `script` loads the script of a place. */
export function startPage(target: HTMLElement, script: NonNullable<Host["script"]>): void {
  show(target, new HttpHost(script), true);
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
