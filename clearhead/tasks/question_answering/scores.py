"""Exact match and F1 of answers by SQuAD's rule, and the report on questions before training."""

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

from clearhead.config import Config
from clearhead.errors import UserError
from clearhead.tasks.question_answering.data import Question, Windows
from clearhead.tasks.scores import Score, scored

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized(text: str) -> str:
    """The text in lower case, without punctuation, articles and extra white space."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact(output: str, references: Sequence[str]) -> float:
    """Whether the output is one of the references; no answer is right where there is no reference."""
    return float(normalized(output) in {*map(normalized, references or [""])})


def f1(output: str, references: Sequence[str]) -> float:
    """The best F1 of the output's words with one of the references; no answer is right where there is no reference."""
    return max(_f1(normalized(output).split(), normalized(text).split()) for text in references or [""])


def _f1(output: Sequence[str], reference: Sequence[str]) -> float:
    if not output or not reference:
        return float(output == reference)
    n_shared = (Counter(output) & Counter(reference)).total()
    return 2 * n_shared / (len(output) + len(reference))


def answer_scores(references: Sequence[Sequence[str]], outputs: Sequence[str]) -> tuple[Score, ...]:
    """F1 and exact match, with bootstrap intervals over questions, and both for questions without an answer."""
    each = {
        name: np.array([score(a, b) for a, b in zip(outputs, references, strict=True)])
        for name, score in {"f1": f1, "exact_match": exact}.items()
    }
    found = [scored(name, _mean, values, values, "0 to 1") for name, values in each.items()]
    none = np.array([not some for some in references])
    if none.any() and not none.all():
        found += [
            scored("f1_answered", _mean, each["f1"][~none], each["f1"][~none], "0 to 1"),
            scored("no_answer", _mean, each["f1"][none], each["f1"][none], "0 to 1"),
        ]
    return tuple(found)


def _mean(values: np.ndarray, _: np.ndarray) -> float:
    return float(values.mean())


class QuestionSplit(Config):
    """One split."""

    name: str
    n_questions: int
    n_contexts: int
    n_unanswered: int
    """Questions without an answer."""
    n_windows: int
    n_windowed: int
    """Questions whose context needs several windows."""
    mean_length: float
    """Mean tokens of a window, special ones included."""
    max_length: int
    answer_length: float
    """Mean characters of an answer."""
    n_labels: int
    """Windows that hold the answer; all others are labelled as without one."""
    n_lost: int
    """Questions with an answer that no window holds as a whole."""
    lost: str
    """The place of the first of them."""
    n_moved: int
    """Questions with an answer that is not at the character which the data say."""
    moved: str
    """The place of the first of them."""
    n_duplicates: int
    """Questions that an earlier one equals, with its context, apart from case and white space."""
    n_shared: int
    """Questions whose context is also in training, apart from case and white space."""
    shared: str
    """The place of the first of them."""

    def lines(self) -> list[str]:
        """The findings as text."""
        n = max(self.n_questions, 1)
        size = f"{self.n_questions:,} questions about {self.n_contexts:,} contexts"
        answers = f"{n - self.n_unanswered:,} questions, {self.answer_length:.1f} characters each"
        lines = [
            f"{self.name}: {size}; {self.mean_length:.1f} tokens each, at most {self.max_length:,}",
            f"  answers: {answers}; {self.n_unanswered:,} without one",
            f"  labels: {self.n_labels:,} of {self.n_windows:,} windows hold the answer",
        ]
        found = [
            (self.n_windowed, "contexts are read in several windows"),
            (self.n_lost, f"answers are in no window, such as {self.lost}; try a larger data.overlap"),
            (self.n_moved, f"answers are not at their answer_start, such as {self.moved}; the nearest is taken"),
            (self.n_duplicates, "duplicates, kept"),
            (self.n_shared, f"({self.n_shared / n:.1%}) have a context that is also in train, such as {self.shared}"),
        ]
        return [*lines, *(f"  {count:,} {what}" for count, what in found if count)]


class QuestionReport(Config):
    """All counts. `lines()` is for people, `model_dump()` for programs."""

    vocab_size: int
    splits: tuple[QuestionSplit, ...]

    def lines(self) -> list[str]:
        """The report as plain text, one finding a line."""
        found = [line for split in self.splits for line in split.lines()]
        return [f"vocabulary: {self.vocab_size:,} tokens", *found]


def question_split(
    name: str, questions: Sequence[Question], data: Windows, *, train: Sequence[Question]
) -> QuestionSplit:
    """The report on a split. Raises UserError for training windows of which none holds an answer."""
    counts = [0] * len(questions)
    held = [0] * len(questions)
    for window in data.windows:
        counts[window.question] += 1
        answers = questions[window.question].answers
        held[window.question] += bool(answers and window.cells(answers[0]))
    answered = [one for one in questions if one.answers]
    lost = [one for one, n in zip(questions, held, strict=True) if one.answers and not n]
    if name == "train" and not any(held):
        raise UserError(f"{lost[0].where}: expected a window that holds an answer, got none; try a larger data.overlap")
    moved = [one for one in questions if one.is_moved]
    known = set[str]() if name == "train" else {one.normalized for one in train}
    shared = [one for one in questions if one.normalized in known]
    return QuestionSplit(
        name=name,
        n_questions=len(questions),
        n_contexts=len({one.normalized for one in questions}),
        n_unanswered=len(questions) - len(answered),
        n_windows=len(data.windows),
        n_windowed=sum(n > 1 for n in counts),
        mean_length=sum(data.lengths) / max(len(data.lengths), 1),
        max_length=max(data.lengths, default=0),
        answer_length=sum(len(one.answers[0].text) for one in answered) / max(len(answered), 1),
        n_labels=sum(held),
        n_lost=len(lost),
        lost=lost[0].where if lost else "",
        n_moved=len(moved),
        moved=moved[0].where if moved else "",
        n_duplicates=len(questions) - len({one.asked for one in questions}),
        n_shared=len(shared),
        shared=shared[0].where if shared else "",
    )
