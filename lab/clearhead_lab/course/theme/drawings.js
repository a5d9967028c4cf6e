// The drawing of a chapter: a click or an arrow key takes the next step. What takes a place grows out of what was there.
(() => {
  const MOTION = 350, still = matchMedia("(prefers-reduced-motion: reduce)");
  const figures = [...document.querySelectorAll(".drawing")];
  const shape = (one) => {
    const { x, y, width, height, transform, fillOpacity } = getComputedStyle(one);
    return { x, y, width, height, transform, fillOpacity };
  };
  for (const figure of figures) {
    const steps = [...figure.querySelectorAll("button")], groups = [...figure.querySelectorAll("[data-from]")];
    let now = 0;
    figure.turn = (by, to = now + by) => {
      if (!steps[to]) return false;
      const before = now;
      now = to;
      steps.forEach((one, i) => (i === now ? one.setAttribute("aria-current", "step") : one.removeAttribute("aria-current")));
      groups.forEach((one, i) => {
        const isAhead = i > now && !groups[i - 1].dataset.until;
        one.classList.toggle("ahead", isAhead);
        one.classList.toggle("off", (i > now && !isAhead) || one.dataset.until <= now);
      });
      const was = groups[before].querySelectorAll("rect, path");
      if (groups[before].dataset.until == now && !still.matches) {
        groups[now].querySelectorAll("rect, path").forEach((one, i) => was[i] && one.animate([shape(was[i]), shape(one)], { duration: MOTION, easing: "ease" }));
      }
      return true;
    };
    figure.classList.add("steps");
    figure.addEventListener("click", ({ target }) => {
      const chosen = steps.indexOf(target.closest("button"));
      if (chosen >= 0) figure.turn(0, chosen);
      else if (target.closest("svg")) figure.turn(1) || figure.turn(0, 0);
    });
    figure.turn(0);
  }
  addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key], inside = event.target.closest?.(".drawing");
    const seen = ({ top, bottom }) => top >= 0 && bottom <= innerHeight;
    const slide = document.querySelector("html.slides") && !event.target.matches?.("input, textarea, select");
    const free = slide || event.target === document.body;
    const figure = inside ?? (free && figures.find((one) => (slide ? one.matches(".now") : seen(one.querySelector("svg").getBoundingClientRect()))));
    if (!by || !figure || event.altKey || event.ctrlKey || event.metaKey || !figure.turn(by)) return;
    if (inside) figure.querySelector("[aria-current]").focus();
    event.preventDefault();
    event.stopImmediatePropagation();
  }, true);
})();
