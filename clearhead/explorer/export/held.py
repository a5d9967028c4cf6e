"""What a file holds of questions that need the model in Python: the answers, by the question as a page asks it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from clearhead.analysis.features import Features
from clearhead.explorer.answering.features import FeaturesQuestion, features
from clearhead.explorer.answering.opened import Opened, stated
from clearhead.explorer.answering.passes import LOCK
from clearhead.explorer.answering.replies import Reply
from clearhead.explorer.answering.requests import RunRequest

DIGITS = 7
"""Digits of a number: those of float32."""
Held = tuple[str, Mapping[str, Any], Any]
"""The name of a question, its fields but the runs, and the answer."""


@dataclass(frozen=True)
class Answers:
    """Answers about one run, or one against another: their entry in the file's document, and their part."""

    told: dict[str, Any]
    reply: Reply

    @classmethod
    def of(cls, run: RunRequest, answers: Iterable[Held], *, corrupt: RunRequest | None = None) -> "Answers":
        """The answers with as many digits as float32 has."""
        given = list(answers)
        told: dict[str, Any] = {"run": stated(run), "asks": list(dict.fromkeys(ask for ask, _, _ in given))}
        if corrupt is not None:
            at = dict.fromkeys(asked["position"] for _, asked, _ in given if "position" in asked)
            told |= {"corrupt": stated(corrupt)} | ({"at": list(at)} if at else {})
        return cls(told, Reply({_key(ask, asked): _short(said) for ask, asked, said in given}))


def held_features(opened: Opened, run: RunRequest) -> Answers | None:
    """The features that are active at each position of a run; None for a model without any."""
    several = [one for one in opened.model.network.attached if isinstance(one, Features)]
    found: list[Held] = []
    for one in several:
        with LOCK:
            n = len(opened.passes.get(run).recording.value(one.address))
            for position in range(n):
                asked = {"at": one.address, "position": position}
                found.append(("features", asked, features(opened, FeaturesQuestion(run=run, **asked)).json))
    return Answers.of(run, found) if found else None


def _key(ask: str, asked: Mapping[str, Any]) -> str:
    """A question as the page's host writes it (ui/src/host/baked/held.ts)."""
    return json.dumps([ask, *map(list, sorted(asked.items()))], separators=(",", ":"), ensure_ascii=False)


def _short(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.{DIGITS}g}")
        case dict():
            return {name: _short(one) for name, one in value.items()}
        case list():
            return [_short(one) for one in value]
        case _:
            return value
