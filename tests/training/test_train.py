import functools
import itertools
import math
import operator
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.errors import NumericError, OutOfMemory, UserError
from clearhead.machine.memory import MemoryLimit
from clearhead.recipe.training import AdamW, WarmupStableDecay
from clearhead.runs import Keeper
from clearhead.storage import checkpoints
from clearhead.training import train as loop
from clearhead.training.events import Ended, Evaluated, Saved, Skipped, Started, Stepped
from clearhead.training.planning.fitting import Estimate
from clearhead.training.planning.memory import Setting, Shape
from clearhead.training.train import train
from tests.training.tiny import (
    OPTIMIZERS,
    Around,
    Kind,
    finish,
    go_on,
    language,
    losses,
    new_run,
    state,
    task_of,
    translation,
)

# --- resumed = uninterrupted -------------------------------------------------------------------------------------


SIXTEEN = {"weights": "bf16", "precision": "bf16"}
RESUMED: list[tuple[Kind, dict[str, Any]]] = [
    ("translation", {"accumulate": 3}),
    ("lm", {"optimizer": OPTIMIZERS["muon"]}),
    ("translation", SIXTEEN),
    ("lm", {**SIXTEEN, "optimizer": OPTIMIZERS["muon"]}),
    ("translation", {"unfreeze_every": 1}),
    ("lm", {"ema": None, "blend": 0.5}),
]


@pytest.mark.parametrize(("kind", "changes"), RESUMED)
def test_resumed_equals_uninterrupted_to_the_bit(tmp_path: Path, kind: Kind, changes: dict[str, Any]):
    task = task_of(kind)
    settings: dict[str, Any] = {"optimizer": OPTIMIZERS["adamw"], "ema": 0.9, "save_every": 1, "evaluate_every": 5}
    settings |= {"label_smoothing": 0.1, **changes}
    whole = new_run(task, tmp_path, **settings)
    events = list(train(whole))
    wanted, n_batches = losses(events), len(task.plan(seed=0, epoch=0))
    epochs = {event.step: event.epoch for event in events if isinstance(event, Stepped)}
    borders = [s for s in range(2, 12) if epochs[s] != epochs[s + 1]]
    assert borders, f"{n_batches} batches an epoch: no border within the run"
    # Step 1, one after an epoch's last batch; once one mid-epoch, one whose update crosses a border, the last but one.
    for cut in sorted({1, borders[0], *((4, borders[0] + 1, 11) if changes == RESUMED[0][1] else ())}):
        again = go_on(task, tmp_path, at=cut, **settings)
        found = list(train(again))
        assert losses(found) == {step: loss for step, loss in wanted.items() if step > cut}
        assert state(again) == state(whole)
        assert [e.evaluation for e in found if isinstance(e, Evaluated)] == [
            e.evaluation for e in events if isinstance(e, Evaluated) and e.step > cut
        ]


def test_a_blend_is_the_first_weights_and_a_share_of_what_training_changed():
    run = new_run(translation(), blend=0.25)
    first = [p.detach().clone() for p in run.network.parameters()]
    list(train(run))
    for before, after, kept in zip(first, run.network.parameters(), run.model.parameters(), strict=True):
        torch.testing.assert_close(kept.data, torch.lerp(before, after.data, 0.25), atol=1e-6, rtol=0)


def test_a_limit_in_epochs_and_the_pace_do_not_depend_on_where_a_run_goes_on(tmp_path: Path):
    task = translation(max_tokens=40)
    lengths = [len(task.plan(seed=0, epoch=epoch)) for epoch in range(2)]
    assert lengths[0] != lengths[1], f"{lengths}: choose another size, or this test shows nothing"
    settings: dict[str, Any] = {"steps": None, "epochs": 2.6, "save_every": 1, "evaluate_every": None}
    settings |= {"schedule": WarmupStableDecay(warmup=2)}
    events = list(train(new_run(task, tmp_path, **settings)))
    cut = lengths[0] + 2
    found = list(train(go_on(task, tmp_path, at=cut, out=tmp_path / "again", **settings)))
    kept = [e for e in events if isinstance(e, Stepped | Evaluated | Saved) and e.step > cut]
    assert losses(found) == losses(kept)
    assert [type(e) for e in found[1:-1]] == [type(e) for e in kept]


# --- exact sums and seeds ----------------------------------------------------------------------------------------


def test_accumulated_gradients_are_those_of_one_large_batch(monkeypatch: pytest.MonkeyPatch):
    task = translation(11)
    parts = [[0], [1, 2, 3, 4, 5], [6, 7], [8, 9, 10]]
    counts = [task.collate(part).count for part in parts]
    assert len(set(counts)) > 2, "unequal counts are what tells a mean of means from the mean"
    gradients: list[dict[str, torch.Tensor]] = []
    norms: list[float] = []
    for plan in (parts, [functools.reduce(operator.iadd, parts, [])]):
        run = new_run(Around(task, plan=plan), dropout=0.0, steps=1, accumulate=len(plan), clip=None)
        found: dict[str, torch.Tensor] = {}

        def keep(run=run, found=found, **_):
            found.update({name: p.grad.clone() for name, p in run.network.named_parameters() if p.grad is not None})

        monkeypatch.setattr(run.optimizer, "step", keep)
        norms += [event.grad_norm for event in train(run) if isinstance(event, Stepped)]
        gradients.append(found)
    small, large = gradients
    assert small.keys() == large.keys()
    assert len(small) > 10
    for name, gradient in large.items():
        assert (small[name] - gradient).norm() <= 1e-6 * max(gradient.norm().item(), 1e-3 * norms[1]), name
    assert norms[0] == pytest.approx(norms[1], rel=1e-6)


def test_seed_decides_everything():
    task = language()
    first, again, other = (finish(new_run(task, seed=seed)) for seed in (0, 0, 1))
    assert first == again
    assert not set(first.values()) & set(other.values())


@pytest.mark.parametrize("kind", ["translation", "lm"])
def test_evaluating_and_saving_change_no_loss(tmp_path: Path, kind: Kind):
    task = task_of(kind)
    bare = new_run(task, ema=0.5)
    watched = new_run(task, tmp_path, ema=0.5, evaluate_every=2, save_every=1)
    torch.manual_seed(99)
    assert finish(bare) == finish(watched)
    assert state(bare) == state(watched)
    assert len(list(tmp_path.glob("step-*"))) == 12


def test_dropout_differs_between_steps_and_batches():
    """Equal examples and weights: only the draws differ."""
    task = translation(1)
    seen: list[float] = []

    def note(total: torch.Tensor, _: int) -> torch.Tensor:
        seen.append(total.item())
        return total

    finish(new_run(Around(task, loss=note), accumulate=3, steps=2, optimizer=AdamW(lr=1e-12)))
    assert len(set(seen)) == 6


# --- not a number ------------------------------------------------------------------------------------------------


def poison(at: set[int], value: float = math.nan):
    return lambda total, n: total * value if n in at else total


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_stops_before_it_touches_a_weight(value: float):
    run = new_run(Around(translation(), loss=poison({5}, value)), ema=0.9)
    events = train(run)
    steps = [event for event in itertools.islice(events, 5) if isinstance(event, Stepped)]
    before = state(run)
    with pytest.raises(NumericError, match=r"^step 5: .*no weight was touched") as caught:
        next(events)
    assert caught.value.exit_code == 4
    assert [event.step for event in steps] == [1, 2, 3, 4]
    assert state(run) == before


def test_skip_leaves_the_update_out_and_goes_on():
    run = new_run(Around(translation(), loss=poison({3, 5, 6})), ema=0.9, on_nan="skip")
    states: dict[int, dict[str, str]] = {}
    kinds: dict[int, str] = {}
    for event in train(run):
        if isinstance(event, Stepped | Skipped):
            states[event.step], kinds[event.step] = state(run), type(event).__name__
    assert [step for step, kind in kinds.items() if kind == "Skipped"] == [3, 5, 6]
    assert states[3] == states[2]
    assert states[5] == states[4] == states[6]
    assert len({tuple(s.values()) for s in states.values()}) == 9
    assert run.progress.skipped == 0


def test_ten_skipped_in_a_row_end_the_run_also_across_a_resume(tmp_path: Path):
    nine = Around(translation(), loss=poison(set(range(2, 11))))
    finish(new_run(nine, on_nan="skip"))
    task = Around(translation(), loss=poison(set(range(2, 100))))
    for event in train(new_run(task, tmp_path, on_nan="skip", save_every=1)):
        if isinstance(event, Saved) and event.step == 5:
            break
    with pytest.raises(NumericError, match="step 11"):
        finish(go_on(task, tmp_path, on_nan="skip"))


# --- how long a run is -------------------------------------------------------------------------------------------


def test_steps_and_epochs_whichever_is_first():
    task = translation()
    with pytest.raises(UserError, match=r"training: expected a limit.*training\.steps"):
        finish(new_run(task, steps=None))
    an_epoch = len(task.plan(seed=0, epoch=0))
    cases: list[tuple[dict[str, Any], int]] = [
        ({"steps": 3}, 3),
        ({"steps": None, "epochs": 2.0}, 2 * an_epoch),
        ({"steps": None, "epochs": 2.0, "accumulate": 2}, an_epoch),
        ({"steps": 5, "epochs": 1.0}, min(5, an_epoch)),
        ({"steps": 1000, "epochs": 0.001}, 1),
    ]
    for settings, wanted in cases:
        events = list(train(new_run(task, **settings)))
        assert isinstance(events[0], Started)
        assert isinstance(events[-1], Ended)
        assert (events[-1].step, events[-1].reason, events[-1].signal) == (wanted, "finished", None)
        assert isinstance(events[-2], Evaluated), "there is always one at the end"


class Clock:
    """Ten seconds an update, in place of the time module."""

    def __init__(self) -> None:
        self.now = 1000.0

    def perf_counter(self) -> float:
        return self.now

    def pass_time(self, total: torch.Tensor, _: int) -> torch.Tensor:
        self.now += 10.0
        return total


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(loop, "time", found := Clock())
    return found


def test_minutes_are_of_training_and_go_on_where_they_were(tmp_path: Path, clock: Clock):
    task = Around(translation(), loss=clock.pass_time)
    settings: dict[str, Any] = {"steps": None, "minutes": 2.0, "save_every": 1}
    settings |= {"schedule": WarmupStableDecay(warmup=0, decay_fraction=0.5)}
    steps = [e for e in train(new_run(task, tmp_path, **settings)) if isinstance(e, Stepped)]
    assert len(steps) == 12
    assert steps[-1].seconds == 120
    assert [e.progress for e in steps] == pytest.approx([i / 12 for i in range(1, 13)])
    assert [e.lr for e in steps] == pytest.approx([1e-3 * min(1.0, (12 - i) / 6) for i in range(12)]), (
        "follows the clock"
    )
    clock.now = 77.0
    again = go_on(task, tmp_path, at=9, **settings)
    assert losses(train(again)) == losses(e for e in steps if e.step > 9)


def test_the_last_evaluation_ends_by_the_limit(clock: Clock):
    run = new_run(Around(translation(), loss=clock.pass_time), steps=None, minutes=2.0, evaluate_every=4)
    steps: list[int] = []
    for event in train(run):
        if isinstance(event, Evaluated):
            steps.append(event.step)
            clock.now += 25.0
    assert steps == [4, 7]
    assert run.progress.seconds == 120.0, "seven steps of 10 seconds and two evaluations of 25"


def test_room_for_the_first_evaluation_is_guessed_from_the_updates(clock: Clock):
    run = new_run(Around(translation(), loss=clock.pass_time), steps=None, minutes=2.0)
    run.task.evaluation_tokens = 6 * run.config.max_tokens
    events = [type(event).__name__ for event in train(run)]
    assert events.count("Stepped") == 9, "the time of three updates is left for the evaluation"
    assert events[-2:] == ["Evaluated", "Ended"]


# --- which checkpoints -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "scores", "log_losses", "best"),
    [
        ("translation", [1, 3, 2, 3], [], [True, True, False, False]),
        ("translation", [0, 0, 0, 0], [5, 4, 3, 3.5], [True, True, True, False]),
        ("translation", [7, 7, 7, 7], [5, 4, 4, 3], [True, True, False, True]),
        ("translation", [math.nan] * 4, [5, 4, 6, 3], [True, True, False, True]),
        ("translation", [math.nan, 0, math.nan, 1], [1, 9, 0.5, 9], [True, True, False, True]),
        ("translation", [math.inf, 1, 2, 1], [1, 2, 3, 0.5], [True, True, True, False]),
        ("translation", [0, 1, 0, 2], [1, 9, 0.5, 9], [True, True, False, True]),
        ("translation", [3, 3, 3, 3], [math.nan, 4, math.inf, 3], [True, True, False, True]),
        ("translation", [math.nan] * 4, [math.nan] * 4, [False, False, False, False]),
        ("smoothed below 4", [3.2, 0.4, 3, 5], [9, 6, 7, 8], [True, True, False, True]),
        ("lm", [math.nan, 3, 2, math.nan], [], [False, True, True, False]),
        ("lm", [3, -math.inf, 4, 1], [], [True, False, False, True]),
    ],
)
def test_the_best_has_the_best_score_and_the_lower_loss_of_equal_ones(
    kind: str, scores: list[float], log_losses: list[float], best: list[bool]
):
    inner, smoothed = language() if kind == "lm" else translation(), 4 if "smoothed" in kind else -math.inf
    run = new_run(Around(inner, scores=scores, losses=log_losses, smoothed=smoothed), steps=4, evaluate_every=1)
    assert [event.is_best for event in train(run) if isinstance(event, Evaluated)] == best
    assert run.progress.best_step == (4 - best[::-1].index(True) if any(best) else None)


def test_patience_waits_as_long_as_the_loss_falls_and_a_resumed_run_knows_it(tmp_path: Path):
    settings: dict[str, Any] = {"steps": 1000, "evaluate_every": 1, "patience": 2, "save_every": 1, "keep_last": 9}
    task = Around(translation(), scores=[0] * 6, losses=[5, 4, 3, 2, 2, 2])
    *_, ended = events = list(train(new_run(task, tmp_path, **settings)))
    evaluated = [event for event in events if isinstance(event, Evaluated)]
    assert [event.is_best for event in evaluated] == [True] * 4 + [False] * 2
    assert [event.by_loss for event in evaluated] == [False, True, True, True, False, False]
    assert isinstance(ended, Ended)
    assert "no better in 2" in ended.reason
    assert [type(event) for event in train(go_on(task, tmp_path, **settings))] == [Started, Ended]
    task = Around(translation(), scores=[0] * 4, losses=[2.5, 1, 1, 1])
    again = list(train(go_on(task, tmp_path, at=4, **settings)))
    assert [event.is_best for event in again if isinstance(event, Evaluated)] == [False, True, False, False]


def test_the_best_is_saved_whatever_save_every_says_and_kept(tmp_path: Path):
    task = Around(translation(), scores=[1.0, 9.0, 3.0, 4.0, 5.0, 6.0])
    run = new_run(task, tmp_path, evaluate_every=2, save_every=5, keep_last=1, keep_spaced=0)
    keeper = Keeper(run)
    for event in train(run):
        keeper(event)
    kept = sorted(checkpoints.step_of(path) for path in tmp_path.glob("step-*"))
    assert kept == [4, 12]
    best = (tmp_path / "best.json").read_text(encoding="utf-8")
    assert '"step-00000004"' in best
    assert "9.0" in best


def test_the_mean_of_the_weights_is_what_is_evaluated_and_kept(tmp_path: Path):
    run = new_run(translation(), tmp_path, ema=0.9)
    finish(run)
    saved = checkpoints.load(tmp_path / "step-00000012").tensors
    assert run.mean is not None
    assert run.model is run.mean
    weights = dict(run.network.named_parameters())
    for name, mean in run.mean.named_parameters():
        assert torch.equal(saved["model.safetensors"][name], mean)
        assert torch.equal(saved["training.safetensors"][name], weights[name])
    assert any(not torch.equal(mean, weights[name]) for name, mean in run.mean.named_parameters())


def test_the_mean_is_the_one_its_equation_says():
    run = new_run(translation(), ema=0.6, steps=6)
    name = "decoder.blocks.0.ffn.up.weight"
    mean = run.network.get_parameter(name).detach().double().clone()
    for event in train(run):
        if isinstance(event, Stepped):
            decay = min(0.6, event.step / (9 + event.step))
            mean = decay * mean + (1 - decay) * run.network.get_parameter(name).detach().double()
    assert run.mean is not None
    torch.testing.assert_close(run.mean.get_parameter(name).detach().double(), mean, rtol=1e-5, atol=1e-8)


def test_clip_limits_the_update_and_tells_the_norm_before():
    """With plain weights and one step of AdamW at eps far above the gradient the update is in proportion to it."""
    moved: dict[float, float] = {}
    for clip in (1e-3, 1e-4):
        run = new_run(
            translation(), steps=1, clip=clip, optimizer=AdamW(lr=1e3, eps=1e3), schedule={"kind": "constant"}
        )
        before = [p.detach().clone() for p in run.network.parameters()]
        norm = next(e.grad_norm for e in train(run) if isinstance(e, Stepped))
        assert norm > 0.1
        moves = zip(run.network.parameters(), before, strict=True)
        moved[clip] = math.sqrt(sum((p.detach() - b).double().square().sum().item() for p, b in moves))
    assert moved[1e-3] == pytest.approx(10 * moved[1e-4], rel=1e-2)


def test_too_little_memory_is_told_before_the_first_step(monkeypatch: pytest.MonkeyPatch):
    task = Around(translation())
    run = new_run(task)
    found = Estimate(run.network.config, run.config, Shape(1, 9, 9), Setting(), run.device, is_allocated=True)
    for n_bytes, message in ((found.fixed, "training.max_tokens: expected a batch"), (10_000, "model: expected one")):
        monkeypatch.setattr(
            "clearhead.machine.memory.memory_limits", lambda n=n_bytes: [MemoryLimit(n, "of free memory")]
        )
        with pytest.raises(OutOfMemory, match=f"^{message} .*; try "):
            next(train(run))
    assert task.n_losses == 0
