"""Answers what changed from the model that is open to another checkpoint, or to the model that it is compared with."""

from dataclasses import asdict
from typing import Annotated

from pydantic import Field

from clearhead.api import Model
from clearhead.capture import Difference, difference, drawn
from clearhead.capture.difference import over_texts
from clearhead.explorer.answering.examples import DataSet, has_data
from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.replies import Reply
from clearhead.explorer.answering.requests import COMPARED, Asked, Step
from clearhead.explorer.lru_cache import LRUCache

SHOWN = 20
"""Tensors, heads, neurons and texts of a reply, at the most."""
LONGEST = 128
"""Tokens of each text that are read."""


class DifferenceQuestion(Asked):
    """Asks what changed from one model to another: with texts, also in heads, neurons and answers."""

    step: Step | None = None
    """The checkpoint of the first; None: the model that was opened."""
    other: Step = COMPARED
    """The checkpoint of the second."""
    texts: Annotated[int, Field(ge=0, le=500)] = 0


class Kept(LRUCache[Difference]):
    """The differences that were found."""


def differs(opened: Opened) -> bool:
    """Whether there is a second model."""
    return opened.compared is not None or len(opened.passes.moments.steps()) > 1


def answer(opened: Opened, question: DifferenceQuestion) -> Reply:
    """The largest changes."""
    first, second = _models(opened, question)
    kept = opened.kept(Kept, lambda: Kept(8))
    plain = question.model_copy(update={"texts": 0})
    found = kept.get(plain.model_dump_json(), lambda: difference(first, second))
    texts = opened.kept(DataSet, lambda: DataSet(opened)).texts()[0] if question.texts and has_data(opened) else []
    if texts:
        some = [text for _, text in drawn(texts, question.texts)]
        found = kept.get(
            question.model_dump_json(), lambda: over_texts(found, first, second, some, length=LONGEST, top=SHOWN)
        )
    shown = asdict(found)
    return Reply({**shown, "tensors": shown["tensors"][:SHOWN], "differing": len(found.tensors)})


def _models(opened: Opened, question: DifferenceQuestion) -> tuple[Model, Model]:
    return opened.passes.checkpoint(question.step), opened.passes.checkpoint(question.other)
