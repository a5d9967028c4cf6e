"""Questions about contexts that hold their answers: reads SQuAD's JSON and tables, cuts windows. No torch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from clearhead.brief import brief
from clearhead.data.files import nearest, read_text
from clearhead.data.guessing import is_table
from clearhead.data.sources import cells_of
from clearhead.data.splits import complete_splits
from clearhead.data.tables import column_names, text_of
from clearhead.errors import UserError
from clearhead.json_text import parse
from clearhead.recipe.data import Column, HeldOut, HubDataset, Source, SquadFiles, Table
from clearhead.recipe.places import Place
from clearhead.text.special_tokens import PROBE
from clearhead.text.tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Answer:
    """Characters of a context."""

    text: str
    start: int

    @property
    def end(self) -> int:
        """The character after its last one."""
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the context to answer it from, and the answers that are right: none if it has no answer there."""

    question: str
    context: str
    answers: tuple[Answer, ...]
    where: str
    """Its place, such as `questions.jsonl:17`."""
    is_moved: bool = False
    """Whether an answer is not at the character that the data say."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Parts have their share of questions without an answer."""
        return ("answer" if self.answers else "none",)

    @property
    def normalized(self) -> str:
        """Equal for questions about the same context, apart from case and white space."""
        return " ".join(self.context.casefold().split())

    @property
    def asked(self) -> str:
        """Equal for questions that are the same as well."""
        return f"{' '.join(self.question.casefold().split())}\t{self.normalized}"


@dataclass(frozen=True)
class AnswerColumns:
    """The columns of a table of questions."""

    question: Column = "question"
    context: Column = "context"
    answer: Column = "answer"
    """An answer as text, empty if there is none; a list of them; or SQuAD's object of `text` and `answer_start`."""

    def read(self, source: Source) -> list[Question]:
        """Every question of a source, in order.

        Raises UserError, which names the place, for an empty question or context, and for an answer that is not in its
        context.
        """
        match source:
            case SquadFiles():
                return [one for path in source.paths for one in self._read(path)]
            case Table() | HubDataset():
                return [*self._rows(source)]
            case _:
                raise UserError(
                    f'{source.kind}: expected questions with contexts, got a source of other data; try kind = "squad"'
                )

    def _read(self, path: Place) -> Iterator[Question]:
        if not is_table(path.name):
            yield from _squad(path)
            return
        table = Table(path=path, text=0, header=True)
        known = column_names(table)
        names = [*map(str, known)]
        answer = self.answer
        if answer == "answer" and "answer" not in names and "answers" in names:
            answer = "answers"
        for column in (self.question, self.context, answer):
            if str(column) not in names:
                raise UserError(f"{path}:1: expected a column {column!r}, got none{nearest(str(column), names)}")
        yield from type(self)(self.question, self.context, answer)._rows(table)

    def _rows(self, source: Table | HubDataset) -> Iterator[Question]:
        columns = (self.question, self.context, self.answer)
        for where, (question, context, answer) in cells_of(source, columns):
            asked = text_of(question, where=f"{where}:{self.question}")
            yield _question(asked, text_of(context, where=f"{where}:{self.context}"), _answers(answer, where), where)


def _answers(cell: Any, where: str) -> list[tuple[str, int | None]]:
    """Answers with the characters where they begin, if the cell says."""
    match cell:
        case None | "":
            return []
        case str(text):
            return [(text, None)]
        case {"text": list(texts), "answer_start": list(starts)}:
            return [(str(text), int(start)) for text, start in zip(texts, starts, strict=False)]
        case list(texts):
            return [(str(text), None) for text in texts]
        case _:
            raise UserError(f"{where}: expected an answer as text, or a list of them, got {cell!r}; mend the row")


def _question(question: str, context: str, answers: Sequence[tuple[str, int | None]], where: str) -> Question:
    for name, text in {"question": question, "context": context}.items():
        if not text.strip():
            raise UserError(f"{where}: expected a {name}, got an empty text; fill it in or delete it")
    found: list[Answer] = []
    is_moved = False
    for written, start in answers:
        text = written.strip()
        places = _occurrences(text, context)
        if not places:
            raise UserError(
                f"{where}: expected an answer that is in its context, got {written!r}; correct or delete it"
            )
        begin = None if start is None else start + len(written) - len(written.lstrip())
        at = places[0] if begin is None else min(places, key=lambda place: abs(place - begin))
        is_moved = is_moved or (begin is not None and at != begin)
        found.append(Answer(text, at))
    return Question(question, context, tuple(found), where, is_moved)


def _occurrences(text: str, context: str) -> list[int]:
    places: list[int] = []
    at = context.find(text) if text else -1
    while at >= 0:
        places.append(at)
        at = context.find(text, at + 1)
    return places


# --- SQuAD's JSON ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Node:
    """A value of a JSON file, and where it is."""

    value: Any
    where: str

    def __getitem__(self, name: str) -> Self:
        """A field. Raises UserError if there is none."""
        if not isinstance(self.value, dict) or name not in self.value:
            raise UserError(f"{self.where}: expected the field {name!r} of SQuAD's format, got none; try another file")
        return type(self)(self.value[name], f"{self.where}.{name}")

    def __iter__(self) -> Iterator[Self]:
        if not isinstance(self.value, list):
            raise UserError(f"{self.where}: expected a list, got {type(self.value).__name__}; mend the file")
        return (type(self)(value, f"{self.where}[{i}]") for i, value in enumerate(self.value))

    @property
    def text(self) -> str:
        """A value that is text."""
        return text_of(self.value, where=self.where)


def _squad(path: Place) -> Iterator[Question]:
    """The questions of SQuAD 1.1 or 2.0 (Rajpurkar et al. 2016, 2018), of which the latter may have no answer."""
    root = _Node(parse(read_text(path), str(path)), f"{path}: $")
    n = 0
    for article in root["data"]:
        for paragraph in article["paragraphs"]:
            for asked in paragraph["qas"]:
                has_none = isinstance(asked.value, dict) and asked.value.get("is_impossible") is True
                answers = [_answer(one) for one in ([] if has_none else asked["answers"])]
                yield _question(asked["question"].text, paragraph["context"].text, answers, asked.where)
                n += 1
    if not n:
        raise UserError(f"{path}: expected questions, got none; try another file")


def _answer(node: _Node) -> tuple[str, int | None]:
    start = node["answer_start"]
    if not isinstance(start.value, int):
        raise UserError(f"{start.where}: expected a number of characters, got {start.value!r}; mend it")
    return node["text"].text, start.value


# --- splits ---------------------------------------------------------------------------------------------------------


def split_questions(splits: dict[str, list[Question]], held_out: HeldOut) -> dict[str, list[Question]]:
    """The splits; those without a source are the questions about some contexts, held out of training.

    Raises UserError for too few contexts, and if no question has an answer.
    """
    train = splits["train"]
    if not any(one.answers for one in train):
        raise UserError(f"{train[0].where}: expected questions with answers to train on, got none; try another column")
    return complete_splits(splits, held_out, expected="contexts, to hold some out")


# --- windows ----------------------------------------------------------------------------------------------------------

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

    def take(self, rows: Sequence[int]) -> Self:
        """The windows of the questions with these numbers."""
        new = {row: i for i, row in enumerate(rows)}
        found = [replace(window, question=new[window.question]) for window in self.windows if window.question in new]
        return type(self)(found, len(rows))

    @property
    def lengths(self) -> list[int]:
        """The ids of each window."""
        return [len(window.ids) for window in self.windows]

    @property
    def sizes(self) -> list[int]:
        """The ids of each question."""
        sizes = [0] * self.n_questions
        for window in self.windows:
            sizes[window.question] += len(window.ids)
        return sizes


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
