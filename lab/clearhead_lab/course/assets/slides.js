/* Slides: a chapter in large type, as much of a section at a time as the window holds; arrow keys turn, Escape ends. */
(() => {
  const article = document.querySelector("article");
  const title = article?.querySelector("h1");
  if (!title || !document.querySelector(".explorer, .slides-please")) return;

  const BAR = 82;
  const isHeading = (one) => /^H[1-6]$/.test(one.tagName);
  const isFigure = (one) => one.matches(".explorer");
  const top = (one) => one.getBoundingClientRect().top;

  /** What has the width of the page would grow by as much as it is shrunk, so it keeps its own. */
  function shrink(one, zoom, width) {
    Object.assign(one.style, { zoom, width });
  }

  /** The elements of each slide: a slide begins at a heading, each figure is one of its own, and none runs over. */
  function slides() {
    const all = [...article.children], shown = all.slice(all.indexOf(title)), found = [];
    for (const one of shown) {
      shrink(one, 1, "");
      one.classList.add("now");
    }
    const room = innerHeight - BAR - parseFloat(getComputedStyle(article).fontSize);
    for (const one of shown) {
      const { bottom, height, width } = one.getBoundingClientRect(), last = found.at(-1);
      if (!height) continue;
      const begins = !last || /^H[12]$/.test(one.tagName) || isFigure(one) || isFigure(last[0]);
      if (!begins && bottom - top(last[0]) <= room) {
        last.push(one);
        continue;
      }
      if (!begins && last.every(isHeading)) last.push(one);
      else found.push(!begins && isHeading(last.at(-1)) ? [last.pop(), one] : [one]);
      const free = room - (top(one) - top(found.at(-1)[0]));
      if (height > free) shrink(one, free / height, `${width}px`);
    }
    return found;
  }

  const start = document.createElement("button");
  start.className = "slides-start";
  start.type = "button";
  start.textContent = "Show as slides";
  title.before(start);

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
    for (const one of article.children) one.classList.toggle("now", all[now].includes(one));
    count.textContent = `${now + 1} of ${all.length}`;
    scrollTo(0, 0);
  }

  function stop() {
    document.documentElement.classList.remove("slides");
    for (const one of article.children) shrink(one, 1, "");
  }

  start.addEventListener("click", () => {
    document.documentElement.classList.add("slides");
    all = slides();
    show(0);
  });
  addEventListener("resize", () => {
    if (!document.documentElement.classList.contains("slides")) return;
    const seen = all[now][0];
    all = slides();
    show(all.findIndex((slide) => slide.includes(seen)));
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
