"""What a run's folder says of its training."""

import json
from pathlib import Path
from typing import Any

import pytest

from clearhead.errors import UserError
from clearhead.explorer.answering.checkpoints import MOST_LOSSES, RunCheckpoints
from clearhead.recipe.places import METRICS
from tests.explorer.test_session import save
from tests.explorer.traced import CONFIGS, model_of


def log(folder: Path, events: list[dict[str, Any]]) -> None:
    (folder / METRICS).write_text("".join(json.dumps(event) + "\n" for event in events))


@pytest.fixture
def run(tmp_path) -> Path:
    model = model_of(CONFIGS["decoder_pre_learned"])
    for step in (2, 4):
        save(model, tmp_path, step)
    return tmp_path


def test_checkpoints_have_their_loss_and_score(run: Path):
    samples = [
        {"source": "one", "output": "x", "reference": "eins"},
        {"source": "two", "output": "", "reference": "zwei"},
    ]
    log(
        run,
        [
            {"kind": "stepped", "step": 1, "loss": 3.0},
            {"kind": "stepped", "step": 3, "loss": 2.0},
            {"kind": "stepped", "step": 4, "loss": None, "loss_raw": "nan"},
            {"kind": "evaluated", "step": 4, "scores": {"bleu": {"value": 12.5, "signature": ""}}, "samples": samples},
        ],
    )
    checkpoints = RunCheckpoints(run)
    assert checkpoints.step == 4
    assert checkpoints.history() == [{"step": 2, "loss": 3.0, "score": None}, {"step": 4, "loss": 2.0, "score": 12.5}]
    assert checkpoints.losses() == [(1, 3.0), (3, 2.0)]
    assert checkpoints.samples() == [("one", "eins"), ("two", "zwei")]
    assert RunCheckpoints(run / "step-00000002").step == 2  # A checkpoint knows its run.
    assert RunCheckpoints(run / "step-00000002").history() == checkpoints.history()


def test_losses_are_thinned_to_means(run: Path):
    log(run, [{"kind": "stepped", "step": i, "loss": float(i % 2)} for i in range(1, 2001)])
    losses = RunCheckpoints(run).losses()
    assert len(losses) <= MOST_LOSSES
    assert losses[-1][0] == 2000
    assert all(abs(loss - 0.5) <= 0.1 + 1e-9 for _, loss in losses)


def test_a_run_without_a_log_and_a_model_without_a_run(run: Path, tmp_path):
    assert RunCheckpoints(run).history() == [{"step": s, "loss": None, "score": None} for s in (2, 4)]
    nothing = RunCheckpoints(None)
    assert (nothing.step, nothing.history(), nothing.losses(), nothing.samples()) == (None, [], [], [])
    assert RunCheckpoints(tmp_path / "no such folder").step is None
    with pytest.raises(UserError, match="step: expected none, for a model of no run, got 3"):
        nothing.load(3)
