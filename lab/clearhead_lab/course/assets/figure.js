// In a figure: leaves out what a small frame has no room for, tells the chapter around it that it is there, and takes the
// chapter's colours.
(() => {
  if (parent === window) return;
  document.documentElement.classList.add("framed");
  const seen = new MutationObserver(() => {
    if (!document.querySelector(".clearhead main[aria-busy=false]")) return;
    seen.disconnect();
    parent.postMessage("clearhead-figure", "*");
  });
  seen.observe(document.getElementById("app"), { childList: true, subtree: true, attributes: true, attributeFilter: ["aria-busy"] });
  addEventListener("message", ({ source, data }) => {
    if (source === parent && (data === "light" || data === "dark")) document.querySelector(".clearhead")?.setAttribute("data-theme", data);
  });
})();
