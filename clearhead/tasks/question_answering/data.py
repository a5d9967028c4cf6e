"""Questions about contexts that hold their answers: reads SQuAD's JSON and tables, cuts windows, scores answers by
SQuAD's rule, and reports on the data. Imports no torch.
"""

import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, JsonValue, NonNegativeInt

from clearhead.data.bad_rows import BadRow, RowErrors, read_each
from clearhead.data.files import read_text
from clearhead.data.guessing import is_table
from clearhead.data.sources import examples_of
from clearhead.data.tables import column_names, read_cells, texts_of
from clearhead.errors import UserError
from clearhead.json_text import NotJson, parse
from clearhead.recipe.data import Column, HubDataset, Source, SquadFiles, Table, TestedData
from clearhead.recipe.places import Place
from clearhead.tasks.parts import Part, Parts
from clearhead.tasks.scores import Score, mean, scored
from clearhead.text.special_tokens import PROBE
from clearhead.text.tokenizers import Tokenizer

USUAL_LENGTH, USUAL_OVERLAP = 384, 128
"""Tokens of a window, and those that two have in common, in the scripts of Devlin et al. 2018."""


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


class QuestionData(TestedData):
    """Questions about contexts that hold their answers."""

    question: Column = "question"
    context: Column = "context"
    answer: Column = "answer"
    """The columns of a table or dataset; SQuAD's files have fields of their own. An answer is text, empty if there is
    none; a list of texts; or SQuAD's object of `text` and `answer_start`."""
    max_length: Annotated[int, Field(ge=16)] = USUAL_LENGTH
    """Most tokens of a question with its context; longer contexts are read in windows."""
    overlap: NonNegativeInt = USUAL_OVERLAP
    """Tokens of the context that two windows have in common."""


def read_questions(source: Source, data: QuestionData) -> list[Question]:
    """Every question of a source, in order.

    Raises UserError, which names the place, for an empty question or context, and for an answer that is not in its
    context.
    """
    columns = data.question, data.context, data.answer
    match source:
        case SquadFiles():
            return [one for path in source.paths for one in _read(path, columns, source)]
        case Table() | HubDataset():
            return [*_rows(source, columns)]
        case _:
            raise UserError(
                f'{source.kind}: expected questions with contexts, got a source of other data; try kind = "squad"'
            )


def _read(path: Place, columns: Sequence[Column], source: SquadFiles) -> Iterator[Question]:
    table = Table(path=path, text=0, header=True, encoding=source.encoding, skip_bad=source.skip_bad)
    if not is_table(path.name):
        value = _value(path, source.encoding)
        is_flat = isinstance(value, dict) and isinstance(value.get("data"), list)
        items = value["data"] if isinstance(value, dict) and is_flat else value
        if (
            not isinstance(items, list)
            or not items
            or any(isinstance(one, dict) and "paragraphs" in one for one in items)
        ):
            root = {"data": value} if isinstance(value, list) else value
            return read_each(lambda _: _squad(root, path), _made, skip=source.skip_bad)
        table = table.model_copy(update={"format": "json", "part": "data" if is_flat else None})
    names, (*others, answer) = {str(name).split(".")[0] for name in column_names(table)}, columns
    if answer == "answer" and answer not in names and "answers" in names:
        answer = "answers"
    return _rows(table, [*others, answer])


def _value(path: Place, encoding: str | None) -> JsonValue:
    """What a JSON file holds; a list of one for records that follow one another."""
    try:
        return parse(read_text(path, encoding=encoding), str(path))
    except NotJson:
        table = Table(path=path, text=0, format="json", encoding=encoding)
        if len([*islice(read_cells(table, [], RowErrors()), 2)]) < 2:
            raise
        return [None]


def _made(where: str, cells: list[object]) -> Question:
    question, context = texts_of(("question", "context"), where, cells[:-1])
    return _question(question, context, _answers(cells[-1], where), where)


def _rows(source: Table | HubDataset, columns: Sequence[Column]) -> Iterator[Question]:
    return examples_of(source, columns, _made)


def _answers(cell: Any, where: str) -> list[tuple[str, int | None]]:
    """Answers with the characters where they begin, if the cell says."""
    match cell:
        case None | "":
            return []
        case str(text):
            return [(text, None)]
        case {"text": list(texts), "answer_start": list(starts)}:
            return [(str(text), int(start)) for text, start in zip(texts, starts, strict=False)]
        case [{"text": _}, *_]:
            return [answer for one in cell for answer in _answers(one, where)]
        case {"text": str(text)}:
            start = cell.get("answer_start")
            return [(text, start if isinstance(start, int) else None)]
        case list(texts):
            return [(str(text), None) for text in texts]
        case _:
            raise BadRow(f"{where}: expected an answer as text, or a list of them, got {cell!r}; mend the row")


def _question(question: str, context: str, answers: Sequence[tuple[str, int | None]], where: str) -> Question:
    for name, text in {"question": question, "context": context}.items():
        if not text.strip():
            raise BadRow(f"{where}: expected a {name}, got an empty text; fill it in or delete it")
    found: list[Answer] = []
    is_moved = False
    for written, start in answers:
        text = written.strip()
        begin = 0 if start is None else start + len(written) - len(written.lstrip())
        around = context.rfind(text, 0, max(begin, 0) + len(text)), context.find(text, max(begin, 0))
        places = [at for at in around if at >= 0]
        if not text or not places:
            raise BadRow(f"{where}: expected an answer that is in its context, got {written!r}; correct or delete it")
        found.append(Answer(text, min(places, key=lambda place: abs(place - begin))))
        is_moved = is_moved or (start is not None and found[-1].start != begin)
    return Question(question, context, tuple(found), where, is_moved)


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


def _squad(value: object, path: Place) -> Iterator[tuple[str, list[object]]]:
    """The questions of SQuAD 1.1 or 2.0 (Rajpurkar et al. 2016, 2018). Those of 2.0 may have no answer."""
    n = 0
    for article in _Node(value, f"{path}: $")["data"]:
        for paragraph in article["paragraphs"]:
            for asked in paragraph["qas"]:
                has_none = isinstance(asked.value, dict) and asked.value.get("is_impossible") is True
                answers = None if has_none else asked["answers"].value
                yield asked.where, [asked["question"].value, paragraph["context"].value, answers]
                n += 1
    if not n:
        raise UserError(f"{path}: expected questions, got none; try another file")


# --- windows ----------------------------------------------------------------------------------------------------------

Typed = list[tuple[int, int]]
"""Tokens and which text each belongs to."""
NO_ANSWER = 0
"""The cell that stands for no answer: the first one, as in Devlin et al. 2018, 4.3."""


@dataclass(frozen=True)
class PairMarks:
    """What a tokenizer's template for two texts puts before, between and after them: tokens with their types."""

    before: Typed
    between: Typed
    after: Typed
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
        both = [*zip(ids, types, strict=True)]
        return cls(both[:first], both[first + n : second], both[second + n :], (types[first], types[second]))

    def __len__(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)


@dataclass(frozen=True)
class Window(Part):
    """A question with a part of its context."""

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


@dataclass(frozen=True, repr=False)
class Windows(Parts[Window]):
    """Questions as windows, at least one each."""

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, str]], tokenizer: Tokenizer, *, limit: int, overlap: int) -> Self:
        """Encodes questions with their contexts, as windows of at most `limit` ids that share `overlap` of the context.

        A question may fill half of a window; the rest of it is cut.
        """
        marks = PairMarks.of(tokenizer)
        windows = [one for i, pair in enumerate(pairs) for one in _windows(i, pair, tokenizer, marks, limit, overlap)]
        return cls(windows, len(pairs))

    @property
    def read(self) -> dict[str, Any]:
        """What the network reads, as `batch_of` takes it."""
        return {"ids": self.ids, "types": [one.types for one in self.parts]}


def _windows(
    i: int, pair: tuple[str, str], tokenizer: Tokenizer, marks: PairMarks, limit: int, overlap: int
) -> Iterator[Window]:
    question = tokenizer.encode(pair[0])[: max(1, (limit - len(marks)) // 2)]
    context, places = tokenizer.encode(pair[1]), tokenizer.offsets(pair[1])
    room = max(1, limit - len(marks) - len(question))
    step = max(1, room - min(overlap, room // 2))
    of_question, of_context = marks.types
    head = [*marks.before, *((token, of_question) for token in question), *marks.between]
    for at in range(0, max(1, len(context) - room + step), step):
        part = [(token, of_context) for token in context[at : at + room]]
        ids, types = (list(side) for side in zip(*head, *part, *marks.after, strict=True))
        yield Window(i, ids, types, len(head), places[at : at + room])


ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized(text: str) -> str:
    """The text in lower case, without punctuation, articles and extra white space."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact(output: str, references: Sequence[str]) -> float:
    """1 if the output is one of the references, else 0. If there is no reference, the empty answer is right."""
    return float(normalized(output) in {*map(normalized, references or [""])})


def f1(output: str, references: Sequence[str]) -> float:
    """The best F1 of the output's words with one of the references; without a reference, the empty answer is right."""
    return max(_f1(normalized(output).split(), normalized(text).split()) for text in references or [""])


def _f1(output: Sequence[str], reference: Sequence[str]) -> float:
    if not output or not reference:
        return float(output == reference)
    n_shared = (Counter(output) & Counter(reference)).total()
    return 2 * n_shared / (len(output) + len(reference))


def answer_scores(references: Sequence[Sequence[str]], outputs: Sequence[str]) -> tuple[Score, ...]:
    """F1 and exact match, with bootstrap intervals over questions, and both for questions without an answer."""
    best, equal = (np.array([score(a, b) for a, b in zip(outputs, references, strict=True)]) for score in (f1, exact))
    found = {"f1": best, "exact_match": equal}
    none = np.array([not some for some in references])
    if none.any() and not none.all():
        found |= {"f1_answered": best[~none], "no_answer": best[none]}
    return tuple(scored(name, mean, values) for name, values in found.items())
