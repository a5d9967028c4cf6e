/* Slides: every section of a chapter alone, in large type; arrow keys turn, Escape ends. */
(() => {
  const article = document.querySelector("article");
  const title = article?.querySelector("h1");
  if (!title || !document.querySelector(".explorer, .slides-please")) return;

  /** The elements of each slide: a slide begins at a heading, and each figure is one of its own. */
  function slides() {
    const found = [];
    const all = [...article.children];
    for (const one of all.slice(all.indexOf(title))) {
      const begins = /^H[12]$/.test(one.tagName) || one.matches(".explorer");
      if (begins || !found.length || found.at(-1)[0].matches(".explorer")) found.push([]);
      found.at(-1).push(one);
    }
    return found;
  }

  const start = document.createElement("button");
  start.className = "slides-start";
  start.type = "button";
  start.textContent = "Show as slides";
  title.after(start);

  const bar = document.createElement("div");
  bar.className = "slides-bar";
  bar.setAttribute("role", "toolbar");
  bar.setAttribute("aria-label", "Slides");
  const [back, count, on, end] = ["button", "span", "button", "button"].map((name) => document.createElement(name));
  back.textContent = "← back";
  on.textContent = "next →";
  end.textContent = "end";
  count.setAttribute("aria-live", "polite");
  bar.append(back, count, on, end);
  document.body.append(bar);

  let all = [];
  let now = 0;

  function show(which) {
    now = Math.max(0, Math.min(all.length - 1, which));
    all.forEach((slide, i) => slide.forEach((one) => one.classList.toggle("now", i === now)));
    count.textContent = `${now + 1} of ${all.length}`;
    scrollTo(0, 0);
  }

  function stop() {
    document.documentElement.classList.remove("slides");
  }

  start.addEventListener("click", () => {
    all = slides().filter((slide) => slide.some((one) => one !== start));
    document.documentElement.classList.add("slides");
    show(0);
  });
  back.addEventListener("click", () => show(now - 1));
  on.addEventListener("click", () => show(now + 1));
  end.addEventListener("click", stop);
  addEventListener("keydown", (event) => {
    if (!document.documentElement.classList.contains("slides") || event.target.matches?.("input, textarea, select")) return;
    const turn = { ArrowRight: 1, PageDown: 1, " ": 1, ArrowLeft: -1, PageUp: -1 }[event.key];
    if (turn) { event.preventDefault(); show(now + turn); }
    if (event.key === "Escape") stop();
  });
})();
