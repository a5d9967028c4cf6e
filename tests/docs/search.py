"""Asks a built site's own search the questions of questions.toml: `python -m tests.docs.search build/course/site`."""

import re
import shutil
import sys
import tomllib
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

QUESTIONS: dict[str, list[str]] = tomllib.loads(Path(__file__).with_name("questions.toml").read_text(encoding="utf-8"))
"""The pages that answer each question."""
FIRST = 3
MILLISECONDS, SETTLED = 120_000, 4_000


def pages(page: Page, question: str, site: str) -> list[str]:
    """The first pages that the search finds, best first."""
    page.locator("input[type=text]").last.fill(question)
    page.wait_for_timeout(SETTLED)
    links = page.locator("li a").evaluate_all("all => all.filter(a => a.getRootNode() !== document).map(a => a.href)")
    found = [re.sub(r"[?#].*", "", link).removeprefix(site).removesuffix(".html") for link in links]
    return [*dict.fromkeys(one.removeprefix("guides/") for one in found)][:FIRST]


def main(site: str) -> None:
    """Prints what each question finds, and how many find a page that answers."""
    with sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=shutil.which("chromium-headless-shell"))
        page = browser.new_page()
        page.set_default_timeout(MILLISECONDS)
        page.goto(f"{site}/index.html")
        page.locator("button.md-search__button").first.click()
        right = 0
        for question, answers in QUESTIONS.items():
            found = pages(page, question, f"{site}/")
            right += bool({*answers} & {*found})
            print("+" if {*answers} & {*found} else "-", question, found)
        print(f"{right} of {len(QUESTIONS)}")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve().as_uri())
