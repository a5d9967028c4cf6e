// With every page the theme fetches its search index, a megabyte. Here it waits until the reader turns to the search.
(() => {
  const waiting = [], late = /search\.js(on)?$/;
  let wanted = new URLSearchParams(location.search).has("h");
  const when = (go) => (wanted ? go() : void waiting.push(go));
  const want = () => { wanted = true; dispatchEvent(new Event("clearhead-search")); for (const go of waiting.splice(0)) go(); };
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

  // Ctrl+K comes before the search is there: it is sent again until the search opens, and then gets what was typed.
  const AGAIN = 50, LONGEST = 10_000;
  let seeking = 0, wasOpen = false, typed = "";
  const search = () => [...document.body.children].find((one) => one.shadowRoot)?.shadowRoot;
  function seek() {
    if (!search()?.querySelector("dialog[open]")) {
      if (performance.now() - seeking > LONGEST) return void (seeking = 0);
      document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "k", ctrlKey: true, bubbles: true, cancelable: true }));
      return void setTimeout(seek, AGAIN);
    }
    const input = search().querySelector("input");
    if (!input) return void setTimeout(seek, AGAIN);
    [seeking, wasOpen] = [0, true];
    input.focus();
    input.value += typed;
    input.dispatchEvent(new InputEvent("input", { bubbles: true, composed: true }));
  }
  addEventListener("keydown", (event) => {
    const { key, ctrlKey, metaKey, isTrusted } = event, isAsked = (ctrlKey || metaKey) && key === "k";
    if (!isTrusted || !(seeking || isAsked || key === "/")) return;
    want();
    if (wasOpen || !(seeking || isAsked)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (seeking) typed += key.length === 1 && !ctrlKey && !metaKey ? key : "";
    else {
      seeking = performance.now();
      seek();
    }
  }, true);
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
