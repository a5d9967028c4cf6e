"""Answers with the overview: how much of one answer each head, attention weight, stream and feed-forward carries."""

from dataclasses import asdict
from math import isnan
from typing import Any, Literal

from torch import Tensor

from clearhead.analysis.overview import Overview
from clearhead.config import LanguageHead
from clearhead.explorer.answering.answers import OverviewReply
from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.passes import Pass
from clearhead.explorer.answering.questions import OfRun, Reply, RunRequest, Whole
from clearhead.explorer.lru_cache import LRUCache
from clearhead.trace import Edit, zero

BUDGET = 8e10
"""The number of multiplications that heads may take: about half a second on two cores."""
BUDGET = 8e10
"""The number of multiplications that heads may take: about half a second on two cores."""
ANSWERS = 6
"""How many answers are told."""


class OverviewQuestion(OfRun):
    """Asks how much of one answer each part of the network carries."""

    position: Whole | None = None
    """That of the answer in the last stack. None: the one whose best head moves it most."""
    part: Literal["heads", "curves", "lanes", "ffn"]


class Overviews(LRUCache[Overview]):
    """The overviews that were asked for last."""


def overview(opened: Opened, question: OverviewQuestion) -> Reply[OverviewReply]:
    """One part of the overview. The parts of one run share its pass."""
    found = opened.passes.get(question.run)
    key = f"{question.position} {question.run.key}"
    kept = opened.kept(Overviews, lambda: Overviews(4))
    with opened.passes.arithmetic(found.reading).products():
        seen = kept.get(key, lambda: _overview(found, question.run, question.position))
        about, tensors = _part(seen, found, question.part)
    return Reply({"position": seen.position, "kind": _kind(seen, found), **about}, tensors)


def _overview(found: Pass, run: RunRequest, position: int | None) -> Overview:
    """The overview of a run: where words are masked, their answers are the ones to choose from."""
    model, tokens = found.model, list(found.recording.tokens.values())[-1]
    mask = model.tokenizer.mask_id if model.has_tokenizer and isinstance(model.config.head, LanguageHead) else None
    edit: dict[str, Edit] = found.edit
    if all(one.do == "zero" for one in run.edits):  # Which needs no other position, unlike a function.
        edit = {one.at: zero for one in run.edits}
    among = [i for i, token in enumerate(tokens) if token.id == mask]
    inputs, vectors = found.reading.inputs, model.sentences.vectors
    return Overview(
        model.network,
        inputs,
        position=position,
        among=among,
        edit=edit,
        seen=found,
        vectors=vectors,
        budget=BUDGET,
    )


def _kind(seen: Overview, found: Pass) -> str:
    if seen.is_vector:
        return "vector"
    return "word" if isinstance(found.model.config.head, LanguageHead) else "class"


def _part(seen: Overview, found: Pass, part: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    match part:
        case "heads":
            heads, decided = seen.heads, seen.decided
            about = {
                "answers": _answers(seen, found),
                "at": heads.at,
                "decided": None if decided is None else {"head": decided[0], "moved": decided[1]},
            }
            return about, {"moved": heads.moved, "p": heads.p}
        case "curves":
            curves = [{**asdict(curve), "p": None if isnan(curve.p) else curve.p} for curve in seen.curves]
            return {"curves": curves, "total": seen.n_weights}, {}
        case _:
            lanes = seen.lanes if part == "lanes" else seen.ffn
            return {"stacks": seen.tokens, "grouped": seen.grouped}, {**lanes}


def _answers(seen: Overview, found: Pass) -> list[dict[str, Any]]:
    values, ids = seen.answer.topk(min(ANSWERS, len(seen.answer)))
    words = found.words(ids)
    return [{"id": i, "word": words[str(i)], "p": p} for i, p in zip(ids.tolist(), values.tolist(), strict=True)]
