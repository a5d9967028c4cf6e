"""The numbers of the source documents by the engine's own parts; the corrected value where they are wrong."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.errors import UserError
from clearhead_lab.examples.parts import f64, set_weight
from clearhead_lab.examples.records import chosen, numbers, records
from clearhead_lab.examples.telling import page
from clearhead_lab.examples.verdicts import COMPUTED, Judged, compare, judge

ERRATA = Path(__file__).resolve().parents[3] / "docs" / "errata.md"
VERDICTS = {
    "WRONG": "wrong",
    "NO_PRINTED_VALUE": "nothing printed",
    "UNVERIFIABLE": "cannot be checked",
}
# How exact: the documents' own inputs are rounded, or they add 1e-4 to a deviation where LayerNorm adds to a variance.
TOLERANCE = {"s3-06": 1e-4, "s2-12": 3e-3, "s3-07": 1e-4, "s4-20b": 2e-4, "s4-26b": 2e-4, "s4-27": 1e-3}
# What the records hold beside our numbers: other inputs, an error, a part of the answer that is not printed.
APART = {"s0-42", "s1-28", "s3-04", "s3-14", "s3-21", "s4-17", "s4-33"}
# Statements that the reviewed list does not have, and half of s0-42, which has inputs of its own.
ADDED = {"s0-42b", "s0-61", "s0-62", "s0-63", "s1-37", "s2-19"} | {n for n, one in records().items() if one.claim}


@cache
def computed(name: str) -> Judged:
    return judge(records()[name])


@pytest.mark.parametrize("name", records())
def test_record(name: str):
    """The verdict is the one that the record is known to have; the errata page pins the right values."""
    assert computed(name).verdict == records()[name].verdict


def test_every_record_is_computed_once():
    assert set(COMPUTED) == set(records())
    assert len(records()) == 227 + len(ADDED)


def test_records_are_the_reviewed_ones(worked_examples: dict[str, dict[str, Any]]):
    assert [*worked_examples] == [name for name in records() if name not in ADDED]
    for name, theirs in worked_examples.items():
        ours = records()[name]
        assert ours.verdict == VERDICTS.get(theirs["verdict"], theirs["verdict"]), name
        assert (ours.document, ours.section) == (theirs["seed"][:3], theirs["section"])
        assert ours.follows == tuple(theirs.get("propagated_from", ()))
        assert bool(ours.cause) == (theirs["verdict"] == "WRONG")
        if isinstance(ours.printed, list) and isinstance(theirs["printed"], list):
            printed = [*ours.printed, records()["s0-42b"].printed] if name == "s0-42" else ours.printed
            assert list(numbers(printed)) == list(numbers(theirs["printed"])), name


def test_our_values_are_the_reviewed_ones(worked_examples: dict[str, dict[str, Any]]):
    checked = 0
    for name, theirs in worked_examples.items():
        ours = computed(name).ours
        try:
            expected = list(numbers(theirs["recomputed"]))
        except (TypeError, ValueError):  # words
            continue
        if isinstance(ours, str) or name in APART:
            continue
        # A sine or cosine near 0 is as exact as float32 near 1.
        tolerance = TOLERANCE.get(name, 1e-6)
        assert ours == pytest.approx(expected, rel=tolerance, abs=tolerance * 0.2), name
        checked += 1
    assert checked >= 170


def test_errata_page_is_up_to_date():
    assert ERRATA.read_text(encoding="utf-8") == page([computed(name) for name in records()])


def test_errata_page_has_every_wrong_record_once(worked_examples: dict[str, dict[str, Any]]):
    rows = [line.split(" | ") for line in ERRATA.read_text(encoding="utf-8").splitlines() if line.startswith("| s")]
    reviewed = [name for name, record in worked_examples.items() if record["verdict"] == "WRONG"]
    wrong = [row[0].removeprefix("| ") for row in rows]
    assert [name for name in wrong if name not in ADDED] == reviewed
    assert {*wrong} & ADDED == ADDED - {"s0-42b"}
    assert all(len(row) == 6 and row[5].strip(" |") for row in rows)


@pytest.mark.parametrize(
    ("printed", "ours", "decimals", "verdict"),
    [
        ([1.18], [1.175], 2, "reproduces"),
        ([1.18], [1.186], 2, "rounding"),
        ([1.18], [1.191], 2, "wrong"),
        ([12], [13], None, "wrong"),
        ([12], [12], None, "reproduces"),
        ([15_360_000], [15_360_001], None, "wrong"),
        ([1, 2], [1], None, "wrong"),
    ],
)
def test_comparison(printed: list[float], ours: list[float], decimals: int | None, verdict: str):
    assert compare(printed, ours, decimals=decimals) == verdict


def test_chosen_by_id_and_by_beginning():
    assert [one.id for one in chosen(["s3-06", "s0-11"])] == ["s3-06", "s0-11a", "s0-11b", "s0-11c"]
    with pytest.raises(UserError, match=r"got 's3-66'; try s3-36"):
        chosen(["s3-66"])


def test_set_weight_is_the_documents_convention():
    linear = torch.nn.Linear(2, 3, bias=False).double()
    set_weight(linear, f64([[1, 2, 3], [4, 5, 6]]))
    assert linear(f64([[1, 1]])).tolist() == [[5, 7, 9]]
