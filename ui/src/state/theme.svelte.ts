/** Light, dark, or as the system says; kept by the browser where it lets us. */

export type Theme = "light" | "dark" | "auto";

const KEY = "clearhead.theme";

function kept(): Theme {
  try {
    const found = localStorage.getItem(KEY);
    return found === "light" || found === "dark" ? found : "auto";
  } catch {
    return "auto";
  }
}

class Choice {
  choice = $state<Theme>(kept());

  /** The other of what is seen now. */
  toggle(): void {
    const dark = this.choice === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : this.choice === "dark";
    this.choice = dark ? "light" : "dark";
    try {
      localStorage.setItem(KEY, this.choice);
    } catch {
      // A page from a file may have no storage: the choice lasts as long as the page.
    }
  }
}

export const theme = new Choice();
