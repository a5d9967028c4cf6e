"""What is asked of every place: axe-core finds nothing wrong, the focus is seen, nothing is wider than its window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from tests.conftest import ROOT
from tests.explorer.conftest import _missing

if TYPE_CHECKING:
    from playwright.sync_api import Page, ViewportSize

Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
AXE = ROOT / "ui" / "node_modules" / "axe-core" / "axe.min.js"
LOOK = """async (rules) => {
  await Promise.all(document.getAnimations().map((one) => one.finished.catch(() => null)));
  const options = { resultTypes: ["violations"], ...(rules && { runOnly: rules }) };
  return (await axe.run(document, options)).violations;
}"""


def violations(page: Page, schemes: Sequence[Scheme] = SCHEMES) -> list[str]:
    """What axe finds in light, and of colours in dark, one line each."""
    if not page.evaluate("'axe' in window"):
        if not AXE.is_file():
            _missing("ui/node_modules/axe-core (npm ci --ignore-scripts, in ui/)")
        page.evaluate(AXE.read_text(encoding="utf-8"))  # The policy forbids script tags.
    lines: list[str] = []
    for scheme in schemes:
        page.emulate_media(color_scheme=scheme)
        found: Any = page.evaluate(LOOK, None if scheme == "light" else ["color-contrast"])
        lines += [
            f"{scheme}: {rule['id']}: {node['target']} {node['html'][:120]} {node['failureSummary'].splitlines()[1]}"
            for rule in found
            for node in rule["nodes"]
        ]
    return lines


def focused(page: Page) -> dict[str, Any]:
    """What has the focus, and whether that is seen: by itself, or by the picture that it is the table of."""
    return page.evaluate("""() => {
      const at = document.activeElement;
      const seen = (one) => {
        const style = getComputedStyle(one);
        return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
      };
      const field = at.closest("form.say");
      const picture = at.closest("figure")?.querySelector(".picture");
      return {
        name: at.getAttribute("aria-label") ?? at.textContent.trim().slice(0, 40), tag: at.tagName, id: at.id,
        seen: seen(at) || (field !== null && seen(field)) || (picture != null && seen(picture)),
      };
    }""")


SIZES: dict[str, ViewportSize] = {
    "large": {"width": 1600, "height": 1000}, "middle": {"width": 1280, "height": 800},
    "zoomed to 200 %": {"width": 800, "height": 500}, "phone": {"width": 390, "height": 800},
}  # fmt: skip
WIDE = """() => {
  const room = document.documentElement.clientWidth;
  const clipped = (at) => {
    for (let up = at.parentElement; up; up = up.parentElement) {
      if (getComputedStyle(up).overflowX !== "visible") return true;
    }
    return false;
  };
  const out = [...document.querySelectorAll(".clearhead *")].filter((at) =>
    at.getBoundingClientRect().right > room + 1 && !clipped(at) && !at.closest(".visually-hidden, svg"));
  const named = out.slice(0, 3).map((at) => `${at.tagName}.${at.className} to ${at.getBoundingClientRect().right}`);
  return [document.documentElement.scrollWidth - room, named];
}"""


def fits(page: Page, *sizes: str) -> None:
    """Nothing makes the page scroll sideways at these sizes, on a phone if none is named; large again afterwards."""
    for name in sizes or ("phone",):
        page.set_viewport_size(SIZES[name])
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 20)))")
        beyond, named = page.evaluate(WIDE)
        assert beyond <= 0, (name, named)
    page.set_viewport_size(SIZES["large"])
