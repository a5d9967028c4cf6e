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
})();
