/** The keys of the page. Fields and figures keep their own. */

import { walking, type Explorer } from "./kit";
import { FORMS } from "../state/page";
import { placeOf, STEPS } from "../state/places";

export const KEYS: readonly [keys: string, what: string][] = [
  ["/", "text"], ["[ ]", "head"], ["{ }", "layer"], [", .", "step"], ["↑ ↓", "query"], ["← →", "key"],
  ["a b d", "sides"], ["h", "head_off"], ["e", "edit"], ["Esc", "out"], ["u", "undo"], ["r", "redo"], ["t", "table"], ["n N", "walk"], ["f", "present"], ["m", "form"], ["?", "help"],
];

export function onkey(event: KeyboardEvent, state: Explorer, help: () => void): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const target = event.target;
  // A dialog handles its own keys, such as Escape.
  if (target instanceof HTMLElement && target.closest("dialog")) return;
  if (target instanceof HTMLElement && target.closest("input, textarea, select, [contenteditable]")) {
    if (event.key === "Escape") target.blur();
    return;
  }
  const act = actions(state, help)[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

function actions(state: Explorer, help: () => void): Record<string, () => void> {
  const { page } = state;
  const step = (by: number): void => {
    if (page.form === "steps" && placeOf(page.view).moments) return state.go({ moment: Math.max(0, page.moment + by) });
    const next = STEPS[STEPS.indexOf(page.step) + by];
    if (next) state.go({ view: "attention", step: next });
  };
  const head = `${state.at}.z[h=${page.head}]`;
  const way = walking(state);
  /** In the overview the arrows enter the words and the blocks, which go on from there. */
  const walk = (of: "query" | "key", by: number): void => {
    if (page.view !== "overview") return state.go({ [of]: page[of] + by });
    const row = document.querySelectorAll<HTMLElement>(`.clearhead .overview .${of === "query" ? "token" : "number"}`);
    [...row].find((one) => one.tabIndex === 0)?.focus();
  };
  const go = (by: number): void => void (way.isOn && way.go(way.index + by));
  return {
    "/": () => document.querySelector<HTMLElement>(".clearhead #text")?.focus(),
    "[": () => state.go({ head: page.head - 1 }), "]": () => state.go({ head: page.head + 1 }),
    "{": () => state.go({ layer: page.layer - 1 }), "}": () => state.go({ layer: page.layer + 1 }),
    ",": () => step(-1), ".": () => step(1),
    ArrowUp: () => walk("query", -1), ArrowDown: () => walk("query", 1), ArrowLeft: () => walk("key", -1), ArrowRight: () => walk("key", 1),
    a: () => state.go({ side: "a" }), b: () => state.go({ side: "b" }), d: () => state.go({ side: "diff" }),
    h: () => void state.edit(head, state.editAt(head) ? null : { do: "zero" }),
    e: () => {
      const cell = document.querySelector<HTMLElement>(".clearhead #cell");
      cell?.closest("details")?.setAttribute("open", "");
      cell?.focus();
    },
    Escape: () => {
      if (page.present && !page.zoom) state.go({ present: false });
      else if (state.hasOverview && !way.isOn) state.out();
    },
    u: () => void state.undo(), r: () => void state.redo(), "?": help, f: () => state.go({ present: !page.present }),
    m: () => {
      if (placeOf(page.view).moments) state.go({ form: page.form === "steps" ? "map" : "steps" });
      else state.go({ view: "attention", form: FORMS[(FORMS.indexOf(page.form) + 1) % FORMS.length]! });
    },
    n: () => go(1), N: () => go(-1),
  };
}
