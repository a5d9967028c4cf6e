"""Tags of words: their schemes such as BIO, the spans that they mark, the best valid sequence, and scores of spans."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from clearhead.tasks.scores import Score, ratio, scored

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
        """Returns True if this is a tag of the scheme. If there is no scheme, any text is a tag."""
        found = MARKED.fullmatch(tag)
        return not self or tag == OUTSIDE or (found is not None and found[1] in self.prefixes)

    def follows(self, before: str, tag: str) -> bool:
        """Returns True if `tag` may follow `before` in a sequence. O stands for its beginning and its end."""
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


@dataclass(frozen=True)
class Span:
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


def with_begins(tags: Sequence[str]) -> list[str]:
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


class Decoder:
    """The tags with the largest sum of log-probabilities among the sequences that their scheme allows."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names, self.scheme = names, decoding_scheme(names)
        around = [*names, OUTSIDE]
        allowed = np.array([[self.scheme.follows(a, b) for b in around] for a in around])
        self.blocked = np.where(allowed, 0.0, -np.inf)
        """v+1 v+1: from a tag to the next one; the last row is the beginning, the last column the end."""

    def __call__(self, shares: np.ndarray) -> np.ndarray:
        """n v -> n: the number of each word's tag (Viterbi 1967)."""
        if not self.scheme or not len(shares):
            return shares.argmax(-1)
        inner, best = self.blocked[:-1, :-1], shares[0] + self.blocked[-1, :-1]
        back = np.zeros(shares.shape, dtype=np.int64)
        for i, row in enumerate(shares[1:], start=1):
            paths = best[:, None] + inner
            back[i] = paths.argmax(0)
            best = paths.max(0) + row
        chosen = [int((best + self.blocked[:-1, -1]).argmax())]
        for i in range(len(shares) - 1, 0, -1):
            chosen.append(int(back[i][chosen[-1]]))
        return np.array(chosen[::-1])


def decoding_scheme(names: Sequence[str]) -> Scheme:
    """The scheme of these tags, or none if some spans could not begin."""
    scheme = scheme_of(names)
    begun = {name[2:] for name in names if name[0] in ("B", scheme.single)}
    return scheme if {name[2:] for name in names if name != OUTSIDE} <= begun else SCHEMES["none"]


def span_scores(references: Sequence[Sequence[Span]], outputs: Sequence[Sequence[Span]]) -> tuple[Score, ...]:
    """Micro-averaged F1, precision and recall of the spans of sentences: words and label must be the same.

    Each has a bootstrap interval over sentences.
    """
    hits = np.array([len({*a} & {*b}) for a, b in zip(references, outputs, strict=True)])
    there, here = (np.array([*map(len, spans)]) for spans in (references, outputs))
    return (
        scored("span_f1", ratio, 2 * hits, there + here),
        scored("precision", ratio, hits, here),
        scored("recall", ratio, hits, there),
    )


def tag_scores(
    references: Sequence[Sequence[str]], outputs: Sequence[Sequence[str]], *, has_spans: bool
) -> tuple[Score, ...]:
    """The scores of the tags of sentences, the main one first. An empty tag in `references` is unknown."""
    hits = [sum(a == b for a, b in zip(*both, strict=True) if a) for both in zip(references, outputs, strict=True)]
    accuracy = scored("accuracy", ratio, np.array(hits), np.array([sum(map(bool, tags)) for tags in references]))
    return (
        (*span_scores([*map(spans_of, references)], [*map(spans_of, outputs)]), accuracy) if has_spans else (accuracy,)
    )


def usual_tags(tagged: Iterable[tuple[str, str]]) -> Callable[[str], str]:
    """The most frequent tag of each word; another word gets the most frequent tag of all."""
    counts = defaultdict[str, Counter[str]](Counter)
    for word, tag in tagged:
        if tag:
            counts[word][tag] += 1
    usual = sum(counts.values(), Counter[str]()).most_common(1)[0][0]
    known = {word: found.most_common(1)[0][0] for word, found in counts.items()}
    return lambda word: known.get(word, usual)
