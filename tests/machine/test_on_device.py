"""Networks, gradients, training, writing and analyses on another device than the CPU, and where Python waits for it."""

import json
import os
import sys
from collections import Counter
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.processes import run

UPDATES, SEARCHED = 4, 6
IS_FAKE = "CLEARHEAD_TEST_DEVICE" not in os.environ


@pytest.fixture(scope="module")
def cases() -> dict[str, Any]:
    """By name; in a process of its own, because the device becomes its accelerator."""
    command = [sys.executable, "-m", "tests.machine.on_device"]
    done = run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return {case["name"]: case for case in map(json.loads, done.stdout.splitlines())}


def test_all_that_runs_on_a_cpu_runs_there_and_gives_the_same(cases: dict[str, Any]) -> None:
    assert len(cases) > 80
    assert {name: case["wrong"] for name, case in cases.items() if case["wrong"]} == {}


@pytest.mark.skipif(not IS_FAKE, reason="a real device does not tell where it was waited for")
def test_a_step_waits_once(cases: dict[str, Any]) -> None:
    """An update for its loss and norm; a token for all that chooses the next one; a beam that ends, once more."""
    assert len(cases["two devices"]["waits"]) == 1
    for name, case in cases.items():
        waits = Counter(wait.split(":")[0] for wait in case["waits"])
        if name.startswith("train"):
            assert waits["training/sharding.py"] == UPDATES, waits
            assert not any(place.startswith(("training/update", "model/")) for place in waits), waits
        elif name.startswith("write"):
            texts, ends = 2, sum("self.history.ids[" in wait for wait in case["waits"])
            assert waits["generation/search.py"] <= texts * SEARCHED + ends, waits
            assert set(waits) <= {"generation/search.py", "elsewhere"}, waits
