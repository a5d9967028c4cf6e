"""Tags that mark spans of words: BIO, IOBES and BILOU (Ramshaw and Marcus 1995; Ratinov and Roth 2009). No torch."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from clearhead.config import Config

SchemeName = Literal["none", "bio", "iobes", "bilou"]
OUTSIDE = "O"
MARKED = re.compile(r"([BIESLU])-(.+)")


@dataclass(frozen=True)
class Scheme:
    """The prefixes of a scheme. Without prefixes, tags mark single words."""

    name: SchemeName
    inside: str = "I"
    last: str = "I"
    """The last of several words."""
    single: str = "B"
    """A span of one word."""

    def __bool__(self) -> bool:
        return self.name != "none"

    @property
    def prefixes(self) -> set[str]:
        """Every prefix."""
        return {"B", self.inside, self.last, self.single} if self else set()

    def has(self, tag: str) -> bool:
        """Whether this is a tag of the scheme; any text is one of no scheme."""
        found = MARKED.fullmatch(tag)
        return not self or tag == OUTSIDE or (found is not None and found[1] in self.prefixes)

    def follows(self, before: str, tag: str) -> bool:
        """Whether a sequence may have these two tags together. O stands for its beginning and its end."""
        if not self:
            return True
        ends = before == OUTSIDE or (self.name == "bio" or before[0] in (self.last, self.single))
        if tag == OUTSIDE or tag[0] in ("B", self.single):
            return ends
        return before != OUTSIDE and before[0] in ("B", self.inside) and before[2:] == tag[2:]


SCHEMES: dict[SchemeName, Scheme] = {
    "none": Scheme("none"),
    "bio": Scheme("bio"),
    "iobes": Scheme("iobes", last="E", single="S"),
    "bilou": Scheme("bilou", last="L", single="U"),
}


class Span(Config):
    """Words [start, end) that have a label together."""

    label: str
    start: int
    end: int


def scheme_of(tags: Iterable[str]) -> Scheme:
    """The scheme that these tags have: none unless there is O and one with a prefix such as B-."""
    known = {*tags}
    used = {found[1] for tag in known if (found := MARKED.fullmatch(tag))}
    if OUTSIDE not in known or not used:
        return SCHEMES["none"]
    if used & {"E", "S"}:
        return SCHEMES["iobes"]
    return SCHEMES["bilou" if used & {"L", "U"} else "bio"]


def normalized(tags: Sequence[str]) -> list[str]:
    """BIO tags, with B- in place of an I- that begins a span, as in IOB1 (Tjong Kim Sang and Veenstra 1999)."""
    found: list[str] = []
    for before, tag in zip(("", *tags), tags, strict=False):
        begins = tag.startswith("I-") and before[2:] != tag[2:]
        found.append(f"B-{tag[2:]}" if begins else tag)
    return found


def spans_of(tags: Sequence[str]) -> list[Span]:
    """The spans of valid tags of any scheme, in order; of other tags as `conlleval` reads them."""
    spans: list[Span] = []
    tags, start = [tag or OUTSIDE for tag in tags], 0
    for i, (tag, after) in enumerate(zip(tags, (*tags[1:], OUTSIDE), strict=True)):
        if tag == OUTSIDE or not MARKED.fullmatch(tag):
            continue
        if not i or tag[0] in "BSU" or tags[i - 1] == OUTSIDE or tags[i - 1][0] in "ESLU" or tags[i - 1][2:] != tag[2:]:
            start = i
        if tag[0] in "ESLU" or after == OUTSIDE or after[0] in "BSU" or after[2:] != tag[2:]:
            spans.append(Span(label=tag[2:], start=start, end=i + 1))
    return spans


def wrong_places(tags: Sequence[str], scheme: Scheme) -> Iterator[int]:
    """The words whose tags cannot follow the tags before them; the number of words for a span without an end."""
    around = [OUTSIDE, *tags, OUTSIDE]
    for i, (before, tag) in enumerate(pairwise(around)):
        if not scheme.follows(before, tag):
            yield i
