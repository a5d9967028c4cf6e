// Opens the figures of a page in turn. The theme's script is half of the work of opening a chapter, so it waits for the
// first figure. The others wait until the reader comes near them.
(() => {
  const LONGEST = 4000, NEAR = "600px";
  let begun = false;
  function begin() {
    if (begun) return;
    begun = true;
    for (const late of document.getElementById("scripts").content.querySelectorAll("script")) {
      const script = document.createElement("script");
      script.src = late.getAttribute("src");
      script.async = false;
      document.body.append(script);
    }
    const near = new IntersectionObserver((seen) => {
      for (const { isIntersecting, target } of seen) {
        if (!isIntersecting) continue;
        near.unobserve(target);
        target.src = target.dataset.src;
      }
    }, { rootMargin: NEAR });
    for (const frame of document.querySelectorAll("iframe[data-src]")) near.observe(frame);
  }
  const first = document.querySelector(".explorer iframe[src]");
  if (!first) return begin();
  addEventListener("message", ({ source, data }) => { if (source === first.contentWindow && data === "clearhead-figure") begin(); });
  setTimeout(begin, LONGEST);
})();
