"""Changes to the settings of a run that goes on."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import JsonValue

from clearhead.errors import UserError
from clearhead.recipe.training import Training
from clearhead.training.length import LIMITS, Length
from clearhead.training.run import Run

MADE_WITH = ("optimizer.kind", "weights", "freeze")
"""Fields that decide which tensors a checkpoint holds, besides whether `ema` is set."""
ARITHMETIC = ("precision", "matmul_precision", "weights")
"""Fields that the arithmetic depends on."""


def differences(before: Training, after: Training) -> dict[str, JsonValue]:
    """The fields that differ, each with its value before and after: {"optimizer.lr": [0.001, 0.0005]}."""
    old, new = (dict(_flat(training.model_dump(mode="json"))) for training in (before, after))
    names = dict.fromkeys([*old, *new])
    return {name: [old.get(name), new.get(name)] for name in names if old.get(name) != new.get(name)}


def require_same_tensors(before: Training, after: Training, *, where: Path) -> None:
    """Raises UserError for a change that the tensors of a checkpoint cannot follow."""
    changed = differences(before, after)
    fixed = [*MADE_WITH, *(["ema"] if (before.ema is None) != (after.ema is None) else [])]
    for name in fixed:
        if isinstance(pair := changed.get(name), list):
            old, new = ("none" if value is None else value for value in pair)
            raise UserError(
                f"--training.{name}: expected {old}, as the checkpoints of {where} were made, got {new}; leave it out,"
                f" or begin a new run with clearhead train and --model.start {where}"
            )


def begin_again(run: Run, *, where: Path) -> None:
    """Let the changes of a restored run take effect. Raises UserError if its new limits leave nothing to train."""
    at, config = run.progress, run.config
    if run.changes.keys() & set(ARITHMETIC):
        at.precision = ""  # It is chosen again.
    if "evaluate_examples" in run.changes:
        at.best_score = at.best_loss = None  # Scores of other examples cannot be compared.
    n_batches = len(run.task.plan(seed=config.seed, epoch=0))
    if run.changes.keys() & set(LIMITS) and Length.of(config, n_batches).done(at) >= 1.0:
        limits = " and ".join(f"training.{name}={dict(config)[name]:g}" for name in LIMITS if dict(config)[name])
        raise UserError(
            f"{where}: expected limits beyond step {at.step:,}, epoch {at.step * config.accumulate / n_batches:.1f} and"
            f" minute {at.seconds / 60:.1f}, where the run is, got {limits}; give a later one, and"
            " --training.NAME null for a limit to lift"
        )


def _flat(table: Mapping[str, JsonValue], prefix: str = "") -> Iterator[tuple[str, JsonValue]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
