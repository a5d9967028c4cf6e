// A button on each block of code that copies it. Without a clipboard the code is selected. A long block of a chapter folds.
(() => {
  const LONG = 14, isChapter = document.querySelector(".drawing, .slides-please");
  for (const code of document.querySelectorAll("article .highlight:not(.no-copy) pre > code")) {
    const button = document.createElement("button"), block = code.closest(".highlight");
    Object.assign(button, { type: "button", className: "copy", textContent: "copy" });
    button.addEventListener("click", async () => {
      getSelection().selectAllChildren(code);
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "copied";
    });
    block.append(button);
    const lines = code.textContent.trimEnd().split("\n").length;
    if (!isChapter || lines < LONG) continue;
    const fold = document.createElement("details"), name = document.createElement("summary");
    name.textContent = `The code, ${lines} lines`;
    block.replaceWith(fold);
    fold.append(name, block);
  }
})();
