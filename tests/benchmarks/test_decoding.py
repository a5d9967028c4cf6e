"""The decoding benchmark runs, and everybody writes as much as was asked; no figure is judged here."""

import json
import sys

import pytest

from benchmarks.contestants.decoder import Answer, Kind
from benchmarks.decoding import TASKS, rate, report
from tests import processes
from tests.architecture.source import ROOT


@pytest.mark.slow
def test_quick_run_ends_with_the_ratios():
    pytest.importorskip("ctranslate2")
    pytest.importorskip("transformers")
    kinds = ("clearhead fp32", "transformers fp32", "ctranslate2 fp32")
    line = ["-m", "benchmarks.decoding", "--quick", "--json", "--threads", "1", "--only", "lm-1"]
    line += [word for kind in kinds for word in ("--kinds", kind)]
    done = processes.run([sys.executable, *line], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    lines = json.loads(done.stdout.splitlines()[-1])["lines"]
    assert [line["peer"] for line in lines] == ["transformers fp32", "ctranslate2 fp32"]


def answer(seconds: float, n: int = 128) -> Answer:
    return Answer(texts=(tuple(range(n)),), seconds=seconds, cpu_seconds=2 * seconds, peak_gb=1.0)


def test_ratios_are_of_medians():
    found: dict[Kind, list[Answer]] = {
        "clearhead fp32": [answer(s) for s in (1.0, 2.0, 9.0)],
        "transformers fp32": [answer(s) for s in (4.0, 4.0, 1.0)],
    }
    table, [line] = report("lm-1", TASKS["lm-1"], found, n_weights=1_000_000, reads=512e6)
    assert (line.what, line.peer, line.ratio) == ("lm-1, clearhead fp32", "transformers fp32", 2.0)
    assert (line.low, line.high, line.share) == (pytest.approx(1 / 9), 4.0, 0.5)
    assert "| clearhead fp32 | 64.0 |" in table
    with pytest.raises(AssertionError, match="ended early"):
        rate(TASKS["lm-1"], answer(1.0, n=20))
