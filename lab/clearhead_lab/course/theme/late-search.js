// With every page the theme fetches its search index, a megabyte. Here it waits until the reader turns to the search.
(() => {
  const waiting = [], late = /search\.js(on)?$/;
  let wanted = new URLSearchParams(location.search).has("h");
  const when = (go) => (wanted ? go() : void waiting.push(go));
  const want = () => { wanted = true; for (const go of waiting.splice(0)) go(); };
  const { open, send } = XMLHttpRequest.prototype, append = document.head.appendChild;
  XMLHttpRequest.prototype.open = function (method, url, ...rest) {
    this.isLate = late.test(url);
    return open.call(this, method, url, ...rest);
  };
  XMLHttpRequest.prototype.send = function (...body) {
    this.isLate ? when(() => send.apply(this, body)) : send.apply(this, body);
  };
  document.head.appendChild = function (node) {
    late.test(node.src ?? "") ? when(() => append.call(this, node)) : append.call(this, node);
    return node;
  };
  for (const event of ["pointerover", "pointerdown", "focusin"]) {
    addEventListener(event, ({ target }) => { if (target.closest?.("[for=__search], .md-search")) want(); }, true);
  }
  addEventListener("keydown", ({ key, ctrlKey, metaKey }) => { if (key === "/" || ((ctrlKey || metaKey) && key === "k")) want(); }, true);
  if (location.protocol !== "file:") return;

  // On a page that was opened from a disk a browser starts no worker. A hidden frame does the work of the search there.
  window.Worker = class {
    onmessage = null;
    #frame = document.createElement("iframe");
    #early = [];

    constructor(url) {
      this.#frame.hidden = true;
      this.#frame.addEventListener("load", () => this.#begin(url), { once: true });
      document.body.append(this.#frame);
    }

    #begin(url) {
      const inside = this.#frame.contentWindow, script = inside.document.createElement("script");
      inside.postMessage = (data) => void setTimeout(() => this.onmessage?.({ data }));
      script.src = new URL(url, location.href).href;
      script.addEventListener("load", () => {
        const early = this.#early;
        this.#early = null;
        for (const data of early) this.postMessage(data);
      });
      inside.document.head.append(script);
    }

    postMessage(data) {
      if (this.#early) this.#early.push(data);
      else this.#frame.contentWindow.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) }));
    }

    terminate() {
      this.#frame.remove();
    }
  };
})();
