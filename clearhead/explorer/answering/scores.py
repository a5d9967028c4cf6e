"""Answers with the terms of one attention score, and of what its key position adds to a logit."""

from clearhead.analysis.scores import split_score, split_value
from clearhead.analysis.shares import Shares
from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.passes import Pass
from clearhead.explorer.answering.replies import Reply
from clearhead.explorer.answering.requests import AddressText, Natural, OfRun, SmallCount


class QKQuestion(OfRun):
    """Asks why a head looks there: for the largest pairs of the score at `at`."""

    at: AddressText
    k: SmallCount = 12


def qk(opened: Opened, question: QKQuestion) -> Reply:
    """The `k` largest pairs of a score, the sum of the others, and the terms that are no pair."""
    found = split_score(_shares(opened.passes.get(question.run)), question.at)
    pairs = [{"query": query, "key": key, "value": value} for query, key, value in found.top(question.k)]
    rest = float(found.pairs.sum()) - sum(value for *_, value in found.top(question.k))
    left = found.pairs.numel() - len(pairs)
    return Reply({"pairs": pairs, "rest": rest, "left": left, "others": found.others, "score": found.score})


class OVQuestion(OfRun):
    """Asks what the cell `at` of attention weights adds to a logit."""

    at: AddressText
    logit: Natural
    minus: Natural | None = None


def ov(opened: Opened, question: OVQuestion) -> Reply:
    """What each part that wrote to the key position adds to the logit through this head, and their sum."""
    shares = _shares(opened.passes.get(question.run))
    found = split_value(shares, question.at, question.logit, minus=question.minus)
    return Reply({"shares": found.shares, "contribution": found.contribution})


def _shares(found: Pass) -> Shares:
    recording = found.recording
    numbers, by_hand = recording.numbers(), recording.manifest.by_hand
    return Shares(found.model.network, recording.value, numbers, by_hand)
