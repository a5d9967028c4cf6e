// Opens the figures of a page in turn. The theme's script is half of the work of opening a chapter, so it waits for the
// first figure. The others wait until the reader comes near them. All have the colours of the page, light or dark.
(() => {
  const LONGEST = 4000, NEAR = "600px";
  const frames = [...document.querySelectorAll(".explorer iframe")], first = frames.find((frame) => frame.src);
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
    for (const frame of frames) if (frame.dataset.src) near.observe(frame);
  }

  function colour(frame) {
    frame.contentWindow?.postMessage(document.body.dataset.mdColorScheme === "slate" ? "dark" : "light", "*");
  }

  if (!first) return begin();
  addEventListener("message", ({ source, data }) => {
    const frame = frames.find((one) => one.contentWindow === source);
    if (!frame || data !== "clearhead-figure") return;
    colour(frame);
    if (frame === first) begin();
  });
  new MutationObserver(() => frames.forEach(colour)).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
  addEventListener("clearhead-search", begin);
  setTimeout(begin, LONGEST);
})();
