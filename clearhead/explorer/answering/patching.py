"""Answers with the rows of a patching sweep, as many at a time as a page asks for."""

from typing import Annotated

from pydantic import Field

from clearhead.analysis.sweep import PARTS, PatchingSweep
from clearhead.errors import UserError
from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.replies import Reply
from clearhead.explorer.answering.requests import AddressText, Asked, Natural, RunRequest, Whole


class PatchingQuestion(Asked):
    """Asks how much of the clean run's answer each state at the addresses `at` restores in the corrupt run."""

    clean: RunRequest
    corrupt: RunRequest
    answer: Natural
    minus: Natural | None = None
    position: Whole = -1
    at: Annotated[list[AddressText], Field(max_length=64)] = Field(default_factory=list[str])


def patching(opened: Opened, question: PatchingQuestion) -> Reply:
    """The alignment, both differences of logits, the addresses of all rows, and a tensor for each address asked for."""
    clean, corrupt = (opened.passes.get(run) for run in (question.clean, question.corrupt))
    if clean.edit or corrupt.edit or clean.model is not corrupt.model:
        raise UserError("patching: expected two texts of one model without edits, got more; leave them out")
    sweep = PatchingSweep(
        clean.model.network,
        clean.reading.inputs,
        corrupt.reading.inputs,
        question.answer,
        minus=question.minus,
        position=question.position,
        values=(clean.recording.value, corrupt.recording.value),
    )
    about = {
        "alignment": sweep.alignment,
        "position": sweep.position,
        "clean": sweep.clean,
        "corrupt": sweep.corrupt,
        "sites": {part: sweep.sites(part) for part in PARTS},
    }
    return Reply(about, {at: sweep.row(at).restored for at in question.at})
