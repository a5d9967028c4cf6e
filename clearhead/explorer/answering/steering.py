"""Answers with how long a direction is that two sets of texts make, beside the states that it is added to."""

from clearhead.errors import UserError
from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.replies import Reply
from clearhead.explorer.answering.requests import AddressText, OfRun, TextSets


class DirectionQuestion(OfRun):
    """Asks for the difference of the means of two sets of texts at an address."""

    at: AddressText
    of: TextSets


def direction(opened: Opened, question: DirectionQuestion) -> Reply:
    """The lengths of the direction and, as a mean over positions, of the run's values at the address."""
    found = opened.passes.get(question.run)
    values = found.recording.value(question.at)
    if values.ndim != 2:
        raise UserError(f"{question.at}: expected one vector for each position; try encoder.blocks.0.resid_post")
    length = opened.passes.direction(found.model, question.of, question.at).norm()
    return Reply({"length": float(length), "states": float(values.norm(dim=-1).mean())})
