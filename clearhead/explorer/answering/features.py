"""The features that are active at a position, with the words that each makes likelier."""

from typing import Annotated

from pydantic import Field, JsonValue

from clearhead.analysis.features import Features, effect_on_logits, strongest
from clearhead.errors import UserError
from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.passes import Pass
from clearhead.explorer.answering.replies import Reply
from clearhead.explorer.answering.requests import AddressText, Natural, OfRun, SmallCount

WORDS = 5
"""How many words are named for each feature."""


class FeaturesQuestion(OfRun):
    """Asks for the most active features of a position. `also` are shown even if they are not active."""

    at: AddressText
    position: Natural
    k: SmallCount = 12
    also: Annotated[list[Natural], Field(max_length=64)] = Field(default_factory=list[int])


def features(opened: Opened, question: FeaturesQuestion) -> Reply:
    """The features with their activations, strongest first, each with words and the parts of logits."""
    found = opened.passes.get(question.run)
    several = [one for one in opened.model.network.attached if isinstance(one, Features)]
    own = next((one for one in several if one.address == question.at), None)
    if own is None:
        known = ", ".join(one.address for one in several) or "none"
        raise UserError(f"at: expected features of this model, {known}, got {question.at!r}; try --features FOLDER")
    active = found.recording.value(question.at)
    if question.position >= len(active):
        raise UserError(f"position: expected one below {len(active)}, got {question.position}")
    row = active[question.position]
    chosen = dict(strongest(row, k=question.k))
    chosen |= {i: float(row[i]) for i in question.also if i < own.n}
    told: list[JsonValue] = [
        {"feature": i, "value": value, "words": _words(found, own, i)} for i, value in chosen.items()
    ]
    return Reply({"active": told, "count": int((row > 0).sum())})


def _words(found: Pass, own: Features, feature: int) -> list[JsonValue]:
    """The words whose logits a feature raises most by the direct way; none if there is no such way."""
    try:
        change = effect_on_logits(found.model.network, own, feature)
    except UserError:
        return []
    ids = change.topk(min(WORDS, len(change))).indices
    texts = found.words(ids)
    return [texts[str(i)] for i in ids.tolist()]
