"""Questions and contexts as the ids that a reader of answers gets: windows of long contexts. Imports no torch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from clearhead.brief import brief
from clearhead.data.squad import Answer
from clearhead.errors import UserError
from clearhead.text.special_tokens import PROBE
from clearhead.text.tokenizers import Tokenizer

NO_ANSWER = 0
"""The cell that stands for no answer: the first one, as in Devlin et al. 2018, 4.3."""


@dataclass(frozen=True)
class Marked:
    """Special tokens and which text they belong to."""

    ids: list[int]
    types: list[int]


@dataclass(frozen=True)
class PairMarks:
    """What a tokenizer's template for two texts puts before, between and after them."""

    before: Marked
    between: Marked
    after: Marked
    types: tuple[int, int]
    """The type of the ids of each text."""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self:
        """Raises UserError if the tokenizer has no template for two texts."""
        (ids, types), bare = tokenizer.encode_pair(PROBE, PROBE), tokenizer.encode(PROBE)
        n = len(bare)
        places = [i for i in range(len(ids)) if bare and ids[i : i + n] == bare]
        if len(places) < 2:
            raise UserError("tokenizer: expected a template around two texts, got another; try its own tokenizer.json")
        first, second = places[0], places[-1]
        parts = [Marked(ids[a:b], types[a:b]) for a, b in ((0, first), (first + n, second), (second + n, len(ids)))]
        return cls(*parts, types=(types[first], types[second]))

    def __len__(self) -> int:
        return sum(len(part.ids) for part in (self.before, self.between, self.after))


@dataclass(frozen=True)
class Window:
    """A question with a part of its context."""

    question: int
    """The number of the question."""
    ids: list[int]
    types: list[int]
    start: int
    """The cell of the context's first token in it."""
    places: list[tuple[int, int]]
    """Where in the context each of its tokens is, in characters."""

    def cells(self, answer: Answer) -> tuple[int, int] | None:
        """The cells of the answer's first and last token; None if this part does not hold all of them."""
        inside = [i for i, (a, b) in enumerate(self.places) if a < answer.end and b > answer.start]
        if not inside or self.places[inside[0]][0] > answer.start or self.places[inside[-1]][1] < answer.end:
            return None
        return self.start + inside[0], self.start + inside[-1]


@dataclass(frozen=True)
class Windows:
    """Questions as windows, at least one each."""

    __repr__ = brief

    windows: list[Window]
    n_questions: int

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, str]], tokenizer: Tokenizer, *, limit: int, overlap: int) -> Self:
        """Encodes questions with their contexts, as windows of at most `limit` ids that share `overlap` of the context.

        A question may fill half of a window; the rest of it is cut.
        """
        marks = PairMarks.of(tokenizer)
        windows = [one for i, pair in enumerate(pairs) for one in _windows(i, pair, tokenizer, marks, limit, overlap)]
        return cls(windows, len(pairs))

    def taken(self, rows: Sequence[int]) -> Self:
        """The windows of the questions with these numbers."""
        new = {row: i for i, row in enumerate(rows)}
        found = [replace(window, question=new[window.question]) for window in self.windows if window.question in new]
        return type(self)(found, len(rows))

    @property
    def lengths(self) -> list[int]:
        """The ids of each window."""
        return [len(window.ids) for window in self.windows]


def _windows(
    i: int, pair: tuple[str, str], tokenizer: Tokenizer, marks: PairMarks, limit: int, overlap: int
) -> Iterator[Window]:
    question = tokenizer.encode(pair[0])[: max(1, (limit - len(marks)) // 2)]
    ids, places = tokenizer.encode(pair[1]), tokenizer.offsets(pair[1])
    room = max(1, limit - len(marks) - len(question))
    step = max(1, room - min(overlap, room // 2))
    head = [*marks.before.ids, *question, *marks.between.ids]
    of_question, of_context = marks.types
    types = [*marks.before.types, *[of_question] * len(question), *marks.between.types]
    for at in range(0, max(1, len(ids) - room + step), step):
        part = ids[at : at + room]
        yield Window(
            i,
            [*head, *part, *marks.after.ids],
            [*types, *[of_context] * len(part), *marks.after.types],
            len(head),
            places[at : at + room],
        )
