"""What a page shows, beside what its commands print: words are equal, numbers are near."""

import re

NUMBER = re.compile(r"(?<![\w.])[-−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
SHARE, LEAST = 0.1, 0.05
"""How far numbers with a decimal point may be apart: docs/tutorials/index.md says so."""


def difference(shown: str, printed: str) -> str | None:
    """The first line that is shown and not printed; None if there is none.

    A line `…` stands for any lines, and `…` within a line for any characters.
    """
    lines, free = [line for line in printed.splitlines() if line.strip()], False
    for line in shown.splitlines():
        if line.strip() == "…":
            free = True
        elif line.strip():
            at = next((i for i, one in enumerate(lines if free else lines[:1]) if is_like(line, one)), None)
            if at is None:
                return line
            lines, free = lines[at + 1 :], False
    return None if free or not lines else f"nothing more, but it prints {lines[0]!r}"


def is_like(shown: str, printed: str) -> bool:
    form, asked = "", []
    for part in re.split(rf"({NUMBER.pattern}|…|\s+)", shown.strip()):
        if part == "…":
            form += ".*"
        elif NUMBER.fullmatch(part):
            form, asked = f"{form}({NUMBER.pattern})", [*asked, part]
        else:
            form += re.sub(r"\s+", r"\\s+", part) if part.isspace() else re.escape(part)
    found = re.fullmatch(form, printed.strip())
    return found is not None and all(is_near(one, other) for one, other in zip(asked, found.groups(), strict=True))


def is_near(shown: str, printed: str) -> bool:
    a, b = (float(one.replace(",", "").replace("−", "-")) for one in (shown, printed))
    if "." not in shown and "e" not in shown:
        return a == b
    return abs(a - b) <= max(LEAST, SHARE * abs(a))
