"""Answers with what clearhead.analysis measures in a pass."""

from dataclasses import asdict
from typing import Annotated

from pydantic import Field
from torch import Tensor

from clearhead.analysis.ablation import Ablations
from clearhead.analysis.attribution import attribute
from clearhead.analysis.geometry import neighbours as nearest_rows
from clearhead.analysis.geometry import token_table
from clearhead.analysis.heads import head_statistics, weighted_norms
from clearhead.analysis.lens import logit_lens
from clearhead.analysis.metrics import LogitDifference
from clearhead.config import StackName
from clearhead.errors import UserError
from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.replies import Reply
from clearhead.explorer.answering.requests import Addresses, AddressText, Asked, Natural, OfRun, SmallCount, Whole
from clearhead.explorer.recording.recording import refuse_long
from clearhead.explorer.recording.tokens import texts_of
from clearhead.trace import Address

PIECE = 256
"""Positions of one pass of a sweep: a question that comes before it waits for the end of such a pass."""


class EffectsQuestion(OfRun):
    """Asks how much the answer changes without each part."""

    at: Addresses
    position: Whole | None = None
    logit: Natural | None = None
    """The logit whose fall is measured, in place of the divergence of the answer."""


def effects(opened: Opened, question: EffectsQuestion) -> Reply:
    """KL(plain || without), in nats, for each part; how much the logit falls; or 1 - cosine of the model's vectors."""
    found = opened.passes.get(question.run)
    metric = None if question.logit is None else LogitDifference(question.logit, position=question.position)
    if metric is not None and "head.logits" not in found:
        raise UserError("logit: expected none, because this model has no logits; leave it out")
    ablations = Ablations(
        found.model.network,
        found.reading.inputs,
        position=question.position,
        edit=found.edit,
        metric=metric,
        vectors=found.model.sentences.vectors,
    )
    return Reply({"effects": ablations.effects(question.at, budget=PIECE)})


class StatisticsQuestion(OfRun):
    """Asks what each head does; `at` asks for the value-weighted norms of these weights."""

    at: Annotated[list[AddressText], Field(max_length=4096)] = Field(default_factory=list[str])


def statistics(opened: Opened, question: StatisticsQuestion) -> Reply:
    """What each head does, and the value-weighted norms that were asked for."""
    found = opened.passes.get(question.run)
    refuse_long(found.recording, "statistics")
    network = found.model.network
    heads = head_statistics(network, found.reading.inputs, found)
    tensors: dict[str, Tensor] = {}
    for at in question.at:
        path = Address.parse(at).path
        if not path.endswith(".weights") or path not in found:
            raise UserError(f"{at}: expected attention weights of this model, such as decoder.blocks.0.attn.weights")
        tensors[f"{path}.norms"] = weighted_norms(network, found, path.removesuffix(".weights"))[0].float()
    return Reply({"heads": {at: {"kind": one.kind, **asdict(one)} for at, one in heads.items()}}, tensors)


class LensQuestion(OfRun):
    """Asks what the network would say after each block."""

    k: SmallCount = 5


def lens(opened: Opened, question: LensQuestion) -> Reply:
    """The `k` likeliest answers after each block."""
    found = opened.passes.get(question.run)
    seen = logit_lens(found.model.network, found, k=question.k)
    tensors = {"ids": seen.ids[:, 0].int(), "probabilities": seen.probabilities[:, 0], "lse": seen.logsumexp[:, 0]}
    return Reply({"addresses": list(seen.addresses), "words": found.words(seen.ids)}, tensors)


class AttributionQuestion(OfRun):
    """Asks what each part adds to a logit."""

    position: Whole
    logit: Natural
    minus: Natural | None = None


def attribution(opened: Opened, question: AttributionQuestion) -> Reply:
    """What each part adds to the logit, and the logit."""
    found = opened.passes.get(question.run)
    one = attribute(
        found.model.network,
        found.reading.inputs,
        question.logit,
        minus=question.minus,
        position=question.position,
        edit=found.edit,
    )
    shares = {address: float(share[0]) for address, share in one.shares.items()}
    return Reply({"shares": shares, "logit": float(one.logit[0])})


class ById(Asked):
    """A row of the token table."""

    id: Natural


class ByAddress(Asked):
    """Any recorded vector as wide as the token table."""

    at: AddressText


class NeighboursQuestion(OfRun):
    """Asks for the rows of the token table that are nearest to a vector."""

    stack: StackName
    of: ById | ByAddress
    k: SmallCount = 10


def neighbours(opened: Opened, question: NeighboursQuestion) -> Reply:
    """The tokens whose vectors have the largest cosines with the vector."""
    found = opened.passes.get(question.run)
    table = token_table(found.model.network, question.stack)
    of = question.of.id if isinstance(question.of, ById) else found.recording.value(question.of.at)
    near = nearest_rows(table, of, k=question.k)
    ids: list[int] = near.ids.tolist()
    return Reply({"ids": ids, "cosines": near.cosines.float().tolist(), "words": texts_of(found.model, ids)})
