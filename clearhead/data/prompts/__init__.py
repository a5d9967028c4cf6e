"""Sets of prompts: a clean and a corrupt text each, with their answers. Imports no torch.

A set is a table with the columns clean, corrupt, answer, minus and target, or a template in TOML. Four come with this
package, as files beside this one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from string import Formatter
from typing import Any

from clearhead.data.files import read_text
from clearhead.data.sniffing import sniff
from clearhead.data.tables import read_rows
from clearhead.errors import UserError
from clearhead.json_text import parse
from clearhead.recipe import read as read_toml

FIELDS = ("clean", "corrupt", "answer", "minus", "target")
BUNDLED = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.toml"))}
"""The sets of this package by name."""
DATA = '<script type="application/json">'
"""What stands before the data in a report."""
TRIES = 100
"""Draws for each prompt that is wanted. Some give a prompt that is there, or a word twice."""


@dataclass(frozen=True)
class Prompt:
    """A clean and a corrupt text, each in parts: the slots of a template, and the stretches between them."""

    clean: Sequence[str]
    corrupt: Sequence[str]
    answer: str | None = None
    """What follows the clean text."""
    minus: str | None = None
    """What it is compared with, usually what follows the corrupt text."""
    target: str | None = None
    """What the decoder of an encoder-decoder has written so far."""
    names: Sequence[str] = ("",)
    """The name of each part."""

    @property
    def texts(self) -> tuple[str, str]:
        """The clean and the corrupt text."""
        return "".join(self.clean), "".join(self.corrupt)


def prompts_in(name: str | Path, *, n: int = 100, seed: int = 0) -> list[Prompt]:
    """The prompts of a bundled set, a template (.toml), a table or a report (.html).

    A template gives at most `n`, drawn with the seed. Raises UserError for a file that holds no prompts.
    """
    path = BUNDLED.get(str(name), Path(name))
    if path.suffix == ".html":
        data: Any = parse(read_text(path).partition(DATA)[2].partition("</script>")[0], str(path))
        return [Prompt(**row) for row in data["prompts"]]
    if path.suffix == ".toml":
        return draw(read_toml(str(path)), where=path.name, n=n, seed=seed)
    if not path.is_file():
        raise UserError(f"{name}: expected a file, or one of {', '.join(BUNDLED)}, got neither")
    found = sniff(path, given={"header": True, **{one: one for one in FIELDS[:2]}})
    names = [one for i, one in enumerate(FIELDS) if i < 2 or one in found.columns]
    rows = read_rows(found.table, names)
    return [Prompt((clean,), (corrupt,), **dict(zip(names[2:], more, strict=True))) for clean, corrupt, *more in rows]


def draw(template: Mapping[str, Any], *, where: str = "template", n: int = 100, seed: int = 0) -> list[Prompt]:
    """At most `n` prompts of a template, each once: its texts with a word of its list in each slot.

    A list of slots with spaces between their names has rows of as many words. A slot whose list is the name of another
    slot shares the list. No prompt has one word in two slots. Raises UserError for a slot without a list.
    """
    random, found, slots = Random(seed), dict[Prompt, None](), template.get("slots", {})
    for _ in range(TRIES * n if slots else 1):
        words: dict[str, str] = {}
        for names, values in slots.items():
            row = random.choice(slots[values] if isinstance(values, str) else values)
            words |= zip(names.split(), [row] if isinstance(row, str) else row, strict=True)
        texts = {
            field: [*zip(*_parts(template[field], words, where), strict=True)] for field in FIELDS if field in template
        }
        (names, clean), (_, corrupt) = texts["clean"], texts["corrupt"]
        if len(corrupt) != len(clean):
            raise UserError(f"{where}: expected as many slots and stretches in corrupt as in clean, got others")
        if len({*words.values()}) == len(words):
            more = {field: "".join(texts[field][1]) for field in FIELDS[2:] if field in texts}
            found[Prompt(clean, corrupt, names=names, **more)] = None
        if len(found) == n:
            break
    return [*found]


def _parts(text: str, words: Mapping[str, str], where: str) -> Iterator[tuple[str, str]]:
    """The name and the text of each part."""
    for i, (stretch, slot, *_) in enumerate(Formatter().parse(text)):
        if stretch:
            yield f"{2 * i} {stretch.strip()}", stretch
        if slot is not None:
            if slot not in words:
                raise UserError(f"{where}: expected a list for the slot {{{slot}}}, got none; add it below [slots]")
            yield f"{2 * i + 1} {{{slot}}}", words[slot]
