// A button on each block of code that copies it. Without a clipboard the code is selected.
(() => {
  for (const code of document.querySelectorAll("article .highlight:not(.no-copy) pre > code")) {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", className: "copy", textContent: "copy" });
    button.addEventListener("click", async () => {
      getSelection().selectAllChildren(code);
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "copied";
    });
    code.closest(".highlight").append(button);
  }
})();
