/** Light, dark, or as the system says; kept by the browser where it lets us. */

import { keep, kept } from "../core/kept";

export type Theme = "light" | "dark" | "auto";

const KEY = "clearhead.theme";

class Choice {
  choice = $state<Theme>((["light", "dark"] as const).find((name) => name === kept(KEY)) ?? "auto");

  /** The other of what is seen now. */
  toggle(): void {
    const dark = this.choice === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : this.choice === "dark";
    this.choice = dark ? "light" : "dark";
    keep(KEY, this.choice);
  }
}

export const theme = new Choice();
