"""The figures of the serving benchmark; none is judged here."""

import json
import sys

import pytest

from benchmarks.served import Answer
from benchmarks.serving import N_REQUESTS, N_WRITTEN, Turn, Waits, report
from tests import processes
from tests.architecture.source import ROOT


def turn(seconds: float, *texts: tuple[int, ...]) -> Turn:
    answers = [Answer(tokens=text, began=0, first=0.1 * (i + 1), ended=seconds) for i, text in enumerate(texts)]
    return Turn.of(answers, cpu=2 * seconds)


def test_the_ratio_and_what_is_equal():
    alone = [turn(8.0, (1, 2), (3, 4))]
    at_once = [turn(2.0, (1, 2), (3, 4)), turn(4.0, (1, 2), (3, 5)), turn(1.0, (1, 2), (3, 4))]
    waits = Waits(short_alone=0.1, short_beside=0.15, short_beside_p95=0.2, long_alone=3.0, long_again=0.1)
    found = report(alone, at_once, waits=waits, parameters=1)
    assert found.waits.ratio == 1.5
    assert (found.alone, found.at_once) == ((0.5,), (2.0, 1.0, 4.0))
    assert (found.ratio, found.ratio_per_cpu_second) == (4.0, 4.0)
    assert (found.equal, found.tokens) == (0.5, 4)
    assert found.first_alone[0] == 0.15


@pytest.mark.slow
def test_quick_run_ends_with_one_object():
    command = [sys.executable, "-m", "benchmarks.serving", "--quick", "--json", "--threads", "1"]
    done = processes.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["equal"] == 1.0
    assert figures["tokens"] <= N_REQUESTS * N_WRITTEN
    assert figures["ratio"] > 0
