"""Numbers of any size are learned alike: in a unit near their deviation, which no file shows."""

from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.api import load
from clearhead.model.heads import ClassificationHead
from clearhead.model.target_scaling import TargetScale
from tests.tasks.small import begin, check_resumed, losses, run_of
from tests.tasks.test_classification import rows, tables, write_table

FAST = {"optimizer": {"kind": "adamw", "lr": 1e-2}, "schedule": {"kind": "constant"}}


def grades(mean: float, deviation: float) -> list[tuple[str, str]]:
    """A number for each kind of text, with this mean and about this deviation."""
    near = {"animal": -1.2, "fruit": 0.0, "tool": 1.2}
    return [(text, repr(mean + deviation * near[label])) for text, label in rows()]


def recipe(**training: Any) -> dict[str, Any]:
    given = tables(**FAST, **training)
    given["data"]["problem_type"] = "regression"
    return given


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((800.0, 1200.0), TargetScale(1000.0, 256.0)),
        ((-1.0, 1.0), TargetScale(0.0, 1.0)),
        ((0.049, 0.051), TargetScale(0.05, 2.0**-10)),
        ((3.0, 3.0), TargetScale(3.0, 1.0)),
    ],
)
def test_the_unit_is_a_power_of_two(values: tuple[float, ...], expected: TargetScale):
    found = TargetScale.of(values)
    assert (found.mean, found.unit) == (pytest.approx(expected.mean), expected.unit)


def test_the_loss_falls_alike_whatever_the_size_of_the_numbers():
    """Exactly so where the numbers are a power of two times others."""
    found: dict[str, list[float]] = {}
    for name, mean, deviation in (("small", 0.0, 0.75), ("large", 0.0, 0.75 * 1024), ("far", 1000.0, 200.0)):
        write_table(Path("table.csv"), grades(mean, deviation))
        found[name] = [*losses(begin(recipe(steps=16, save_every=None), name)[0]).values()]
    assert found["large"] == pytest.approx(found["small"], rel=1e-4)
    assert all(curve[-1] < 0.3 * curve[0] for curve in found.values())


def test_resumed_as_if_never_stopped_and_saved_in_the_units_of_the_labels():
    write_table(Path("table.csv"), grades(1000.0, 200.0))
    check_resumed(recipe())
    run, model = run_of(recipe()), load("run")
    head, learned = model.network.head, run.model.head
    assert isinstance(head, ClassificationHead)
    assert isinstance(learned, ClassificationHead)
    assert (head.unit, learned.unit) == (1.0, 256.0)
    assert [name for name, _ in model.classify(["the cat and the dog"])[0]] == ["kind"]
    ids = torch.tensor([model.tokenizer.encode("the cat and the dog")])
    assert torch.equal(model.network(ids), run.model.eval()(ids))
    assert model.network(ids).item() == pytest.approx(1000, abs=400)


def test_a_head_that_knows_the_numbers_goes_on_from_there():
    write_table(Path("table.csv"), grades(1000.0, 200.0))
    run_of(recipe(), "first")
    given = recipe() | {"model": {"start": "first"}}
    given.pop("tokenizer")
    run, _ = begin(given, "second")
    ids = torch.tensor([[5, 6, 7]])
    assert torch.equal(run.network.eval()(ids), load("first").network(ids))
