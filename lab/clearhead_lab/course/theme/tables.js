// What scrolls sideways can be reached by the keyboard, and the empty corner of a table is no heading.
(() => {
  for (const corner of document.querySelectorAll("article th:empty")) corner.replaceWith(document.createElement("td"));
  const wide = document.querySelectorAll("article :is(pre > code, table, .formula)");
  const mark = () => {
    for (const one of wide) {
      if (one.scrollWidth > one.clientWidth) one.tabIndex = 0;
      else one.removeAttribute("tabindex");
    }
  };
  addEventListener("resize", mark);
  addEventListener("toggle", mark, true);
  mark();
})();
