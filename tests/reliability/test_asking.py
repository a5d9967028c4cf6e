"""Every way to ask, in small; `python -m tests.reliability.asking` asks 300 inputs of every task."""

from collections import Counter

import pytest

from tests.reliability.asking import Refusal, Tally, every_way, kinds

FEW = 10
ALIKE = {"several labels", "regression", "classification of bytes", "tags", "adapter"}
"""Kinds whose ways are those of another here."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in ALIKE else []) for name in kinds()]
)
def test_every_way_to_ask_gives_one_answer(name: str, tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda _: None)
    found = every_way(tmp_path, FEW, [name], exports=False)
    assert (found.tried > 5 * FEW, found.broken) == (True, 0)


def test_another_answer_a_lost_one_and_a_lone_refusal_are_broken():
    tally = Tally()
    tally.compare("way", ["a", "b"], [{"label": "x"}, {}], [{"label": "x", "probability": 1.0}, {"label": "y"}])
    tally.compare("way", ["a", "b"], [{"label": "x"}], [{"label": "x"}, {"label": "y"}])
    tally.compare("way", ["a"], Refusal("no"), [{"label": "x"}])
    tally.compare("way", ["a"], [{"vector": [0.1, 0.3]}], [{"vector": [0.1, 0.2]}])
    tally.refuse("way", "a", [{"label": "x"}])
    assert (tally.counts, len(tally.broken)) == (Counter(asked=7, equal=1), 5)
