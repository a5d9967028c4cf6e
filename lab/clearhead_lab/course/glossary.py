"""Words of the glossary: `[[residual stream]]` in a page links to what docs/glossary.md says of it."""

import re

from clearhead_lab.course.page import GUIDES

SOURCE = GUIDES / "glossary.md"
ROW = re.compile(r"^\| (?P<terms>[^|]+?) \| [^|]+ \|$", re.MULTILINE)
LINK = re.compile(r"\[\[(?P<term>[A-Za-z][A-Za-z -]+)(?:\|(?P<shown>[^\]]+))?\]\]")


def terms(text: str) -> dict[str, str]:
    """Every term of the glossary with the name of its anchor."""
    rows = [row["terms"] for row in ROW.finditer(text) if row["terms"] not in ("term", "letter")]
    return {term: f"term-{slug(term)}" for row in rows for term in row.replace("`", "").split(", ")}


def slug(term: str) -> str:
    """The term as a part of an address."""
    return re.sub(r"\W+", "-", term.lower()).strip("-")


def anchored(text: str) -> str:
    """The glossary with an anchor at each term."""

    def mark(row: re.Match[str]) -> str:
        if row["terms"] in ("term", "letter"):
            return row[0]
        anchors = "".join(f'<a id="term-{slug(term)}"></a>' for term in row["terms"].replace("`", "").split(", "))
        return row[0].replace("| ", f"| {anchors}", 1)

    return ROW.sub(mark, text)


def unknown(text: str, known: dict[str, str]) -> list[str]:
    """Words that a page links and the glossary does not have."""
    return [found["term"] for found in LINK.finditer(text) if found["term"] not in known]


def linked(text: str, known: dict[str, str], page: str) -> str:
    """The text with its words linked to the page of the glossary."""

    def link(found: re.Match[str]) -> str:
        return f"[{found['shown'] or found['term']}]({page}#{known[found['term']]})"

    return LINK.sub(link, text)


def shown(text: str) -> str:
    """The text with its words as they are read, without links."""
    return LINK.sub(lambda found: found["shown"] or found["term"], text)
