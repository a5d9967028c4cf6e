"""Answers with what clearhead.analysis measures in a pass."""

from dataclasses import asdict
from typing import Annotated

import torch
from pydantic import Field, JsonValue
from torch import Tensor

from clearhead.analysis.ablation import Ablations
from clearhead.analysis.attention import head_statistics, weighted_norms
from clearhead.analysis.attribution import attribute
from clearhead.analysis.features import Features, effect_on_logits, strongest
from clearhead.analysis.geometry import neighbours as nearest_rows
from clearhead.analysis.geometry import token_table
from clearhead.analysis.lens import logit_lens
from clearhead.analysis.metrics import LogitDifference
from clearhead.analysis.scores import split_score, split_value
from clearhead.analysis.shares import Shares
from clearhead.analysis.sweep import PARTS, PatchingSweep
from clearhead.config import StackName
from clearhead.errors import UserError
from clearhead.explorer.answering.answers import (
    AttributionReply,
    DirectionReply,
    EffectsReply,
    FeaturesReply,
    LensReply,
    NeighboursReply,
    OVReply,
    PatchingReply,
    QKReply,
    StatisticsReply,
)
from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.passes import Pass
from clearhead.explorer.answering.questions import (
    Addresses,
    AddressText,
    Asked,
    Natural,
    Number,
    OfRun,
    Reply,
    RunRequest,
    SmallCount,
    TextSets,
    Whole,
)
from clearhead.explorer.lru_cache import LRUCache
from clearhead.explorer.recording.recording import refuse_long
from clearhead.explorer.recording.tokens import texts_of
from clearhead.trace import Address, add

PIECE = 256
"""Positions of one pass of a sweep: a question that comes before it waits for the end of such a pass."""


class EffectsQuestion(OfRun):
    """Asks how much the answer changes without each part."""

    at: Addresses
    position: Whole | None = None
    logit: Natural | None = None
    """The logit whose fall is measured, in place of the divergence of the answer."""


class LastAblations(LRUCache[Ablations]):
    """The ones that were asked for last: a page asks for one attention after another."""


def effects(opened: Opened, question: EffectsQuestion) -> Reply[EffectsReply]:
    """KL(plain || without), in nats, for each part; how much the logit falls; or 1 - cosine of the model's vectors."""
    found = opened.passes.get(question.run)
    metric = None if question.logit is None else LogitDifference(question.logit, position=question.position)
    if metric is not None and "head.logits" not in found:
        raise UserError("logit: expected none, because this model has no logits; leave it out")
    kept = opened.kept(LastAblations, lambda: LastAblations(1))
    with opened.passes.arithmetic.products():
        ablations = kept.get(
            f"{question.position} {question.logit} {question.run.key}",
            lambda: Ablations(
                found.model.network,
                found.reading.inputs,
                position=question.position,
                edit=found.edit,
                metric=metric,
                vectors=found.model.sentences.vectors,
            ),
        )
        return Reply({"effects": ablations.effects(question.at, budget=PIECE)})


class StatisticsQuestion(OfRun):
    """Asks what each head does. `at` lists attention weights whose value-weighted norms are wanted."""

    at: Annotated[list[AddressText], Field(max_length=4096)] = Field(default_factory=list[str])


def statistics(opened: Opened, question: StatisticsQuestion) -> Reply[StatisticsReply]:
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
    """Asks what the network would say after each block, at all positions or at one."""

    k: SmallCount = 5
    position: Natural | None = None
    whole: bool = False
    """Whether a head that pools reads all positions together."""


def lens(opened: Opened, question: LensQuestion) -> Reply[LensReply]:
    """The `k` likeliest answers after each block."""
    found = opened.passes.get(question.run)
    last = len(list(found.recording.tokens.values())[-1]) - 1
    position = None if question.position is None else min(question.position, last)
    seen = logit_lens(found.model.network, found, k=question.k, position=position, whole=question.whole)
    tensors = {"ids": seen.ids[:, 0].int(), "probabilities": seen.probabilities[:, 0], "lse": seen.logsumexp[:, 0]}
    return Reply({"addresses": list(seen.addresses), "words": found.words(seen.ids)}, tensors)


class AttributionQuestion(OfRun):
    """Asks what each part adds to a logit."""

    position: Whole
    logit: Natural
    minus: Natural | None = None


def attribution(opened: Opened, question: AttributionQuestion) -> Reply[AttributionReply]:
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


class ByNumbers(Asked):
    """Any other vector as wide as the token table."""

    numbers: Annotated[list[Number], Field(max_length=65536)]


class NeighboursQuestion(OfRun):
    """Asks for the rows of the token table that are nearest to a vector."""

    stack: StackName
    of: ById | ByAddress | ByNumbers
    k: SmallCount = 10


def neighbours(opened: Opened, question: NeighboursQuestion) -> Reply[NeighboursReply]:
    """The tokens whose vectors have the largest cosines with the vector."""
    found = opened.passes.get(question.run)
    table = token_table(found.model.network, question.stack)
    of = question.of
    near = nearest_rows(
        table,
        of.id
        if isinstance(of, ById)
        else found.recording.value(of.at)
        if isinstance(of, ByAddress)
        else torch.tensor(of.numbers),
        k=question.k,
    )
    ids: list[int] = near.ids.tolist()
    return Reply({"ids": ids, "cosines": near.cosines.float().tolist(), "words": texts_of(found.model, ids)})


class QKQuestion(OfRun):
    """Asks why a head looks there: for the largest pairs of the score at `at`."""

    at: AddressText
    k: SmallCount = 12


def qk(opened: Opened, question: QKQuestion) -> Reply[QKReply]:
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


def ov(opened: Opened, question: OVQuestion) -> Reply[OVReply]:
    """What each part that wrote to the key position adds to the logit through this head, and their sum."""
    shares = _shares(opened.passes.get(question.run))
    found = split_value(shares, question.at, question.logit, minus=question.minus)
    return Reply({"shares": found.shares, "contribution": found.contribution})


def _shares(found: Pass) -> Shares:
    recording = found.recording
    numbers, by_hand = recording.numbers(), recording.by_hand
    return Shares(found.model.network, recording.value, numbers, by_hand)


class PatchingQuestion(Asked):
    """Asks how much of the clean run's answer each state at the addresses `at` restores in the corrupt run."""

    clean: RunRequest
    corrupt: RunRequest
    answer: Natural
    minus: Natural | None = None
    position: Whole = -1
    at: Annotated[list[AddressText], Field(max_length=64)] = Field(default_factory=list[str])


def patching(opened: Opened, question: PatchingQuestion) -> Reply[PatchingReply]:
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
        values=(clean, corrupt),
    )
    about = {
        "alignment": sweep.alignment,
        "position": sweep.position,
        "clean": float(sweep.clean[0]),
        "corrupt": float(sweep.corrupt[0]),
        "sites": {part: sweep.sites(part) for part in PARTS},
    }
    with opened.passes.arithmetic.products():
        return Reply(about, {at: sweep.row(at).restored for at in question.at})


class DirectionQuestion(OfRun):
    """Asks for the difference of the means of two sets of texts at an address."""

    at: AddressText
    of: TextSets
    answers: Annotated[list[Natural], Field(max_length=8)] | None = None
    """Those whose probabilities are told, with the direction added up to `MOST` times, forwards and backwards."""
    position: Whole | None = None


MOST, STRENGTHS = 8, 33
"""The largest strength at which probabilities are told, and how many there are."""


def direction(opened: Opened, question: DirectionQuestion) -> Reply[DirectionReply]:
    """The lengths of the direction and, as a mean over positions, of the run's values at the address."""
    found = opened.passes.get(question.run)
    values = found.recording.value(question.at)
    if values.ndim != 2:
        raise UserError(f"{question.at}: expected one vector for each position; try encoder.blocks.0.resid_post")
    vector = opened.passes.direction(found.model, question.of, question.at)
    curve: list[tuple[float, list[float]]] = []
    if question.answers:
        runs = Ablations(found.model.network, found.reading.inputs, position=question.position)
        strengths = torch.linspace(-MOST, MOST, STRENGTHS).tolist()
        for i, logs in runs.edited([{question.at: add(vector * strength)} for strength in strengths]):
            curve.append((strengths[i], logs[0, question.answers].exp().tolist()))
    about = {"length": float(vector.norm()), "states": float(values.norm(dim=-1).mean())}
    return Reply({**about, "curve": sorted(curve)})


FEATURE_WORDS = 5
"""How many words are named for each feature."""


class FeaturesQuestion(OfRun):
    """Asks for the most active features of a position. `also` are shown even if they are not active."""

    at: AddressText
    position: Natural
    k: SmallCount = 12
    also: Annotated[list[Natural], Field(max_length=64)] = Field(default_factory=list[int])


def features(opened: Opened, question: FeaturesQuestion) -> Reply[FeaturesReply]:
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
        {"feature": i, "value": value, "words": _words_of_feature(found, own, i)} for i, value in chosen.items()
    ]
    return Reply({"active": told, "count": int((row > 0).sum())})


def _words_of_feature(found: Pass, own: Features, feature: int) -> list[JsonValue]:
    """The words whose logits a feature raises most by the direct way; none if there is no such way."""
    try:
        change = effect_on_logits(found.model.network, own, feature)
    except UserError:
        return []
    ids = change.topk(min(FEATURE_WORDS, len(change))).indices
    texts = found.words(ids)
    return [texts[str(i)] for i in ids.tolist()]
