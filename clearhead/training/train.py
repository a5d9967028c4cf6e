"""The training loop: `for event in train(...)`. Progress bars, logs and pages are consumers of its events."""

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from types import FrameType
from typing import Self

import torch

from clearhead.errors import NumericError
from clearhead.generation.decoding import forget
from clearhead.machine.device import hand_back_freed_memory
from clearhead.machine.precision import accurate
from clearhead.model.fast.dropout import cheap_dropout
from clearhead.model.linear import shapes
from clearhead.model.mode import Evaluating
from clearhead.recipe.training import Training
from clearhead.training.events import Ended, Evaluated, Event, Skipped, Started, Stepped
from clearhead.training.performance import choose, performance_options
from clearhead.training.planning.fitting import Fitting
from clearhead.training.progress import Length, Progress, factor, record_evaluation
from clearhead.training.run import Run
from clearhead.training.run_folder import lock_folder
from clearhead.training.saving import Saver
from clearhead.training.sharding import gathered
from clearhead.training.update import BatchIterator, update

MAX_SKIPPED = 10
PATIENCE = 8, 300
"""Evaluations in a row without a better score, and the updates that they are at least, that end a run by default."""


def train(run: Run) -> Iterator[Event]:
    """Trains until a limit, a signal or early stopping, and yields events in order.

    The loss of an update is the mean over its tokens, for any number of batches. Data order, dropout and
    evaluation are functions of (seed, step), so a resumed run repeats the losses of an uninterrupted one: bit for bit
    in eager mode on one machine with one number of threads, if its limit is steps or epochs.
    The run's folder is locked until the last event has been used. Raises NumericError before an update with a gradient
    that is not finite, and UserError if another process writes to the folder or nothing limits the run.
    """
    with nullcontext() if run.folder is None else lock_folder(run.folder, run.ranks):
        yield from _train(run)


def _train(run: Run) -> Iterator[Event]:
    config, at = run.config, run.progress
    length = Length.of(config, len(run.task.plan(seed=config.seed, epoch=0)), run.task.evaluation_tokens)
    batches = BatchIterator(run)
    yield _begin(run, batches)
    run.network.train()
    clock = time.perf_counter() - at.seconds
    with (
        at.arithmetic.products(),
        cheap_dropout(config.cheap_dropout),
        StopSignal() as stop,
        Saver(run.folder, run.ranks, at.step, shared=run.is_sharded, in_background=config.save_in_background) as saver,
    ):
        while True:
            at.seconds, signal, written = run.ranks.agree(at.seconds, stop.signal, saver.is_done)
            yield from saver.finish(now=written)
            over, is_best = _over(config, length, at), False
            # After a signal the evaluation waits for the resumed run, so the best checkpoint stays the best.
            due = at.evaluated < at.step and (over or at.step % length.evaluate_every == 0)
            if due and signal is None:
                before = at.seconds
                yield (evaluated := _evaluate(run))
                at.seconds, signal, _ = run.ranks.agree(time.perf_counter() - clock, stop.signal, saver.is_done)
                at.evaluation_seconds = at.seconds - before
                is_best, over = evaluated.is_best, _over(config, length, at)
            reason = "stopped" if signal is not None else over
            keep = reason or is_best or at.step == 1 or at.step % length.save_every == 0
            if run.folder is not None and at.step > saver.step and keep:
                yield from saver.save(at.step, run.checkpoint(), best=at.best_step)
            if reason:
                yield from saver.finish()
                break
            pending = batches.next()
            share = factor(config.schedule, at.step + 1, length.done(at))
            loss, norm, n_tokens = update(run, pending, share)
            at.step += 1
            at.seconds = time.perf_counter() - clock
            if _is_finite(run, norm):
                at.n_tokens += n_tokens
                lr = share * config.optimizer.lr
                yield Stepped(at.step, at.epoch, loss, lr, norm, n_tokens, at.seconds, length.done(at))
            else:
                yield Skipped(at.step, norm)
    yield Ended(at.step, at.seconds, reason, signal)


def _over(config: Training, length: Length, at: Progress) -> str:
    """The reason why the run is over; empty if it is not."""
    if length.done(at) >= 1.0:
        return "finished"
    patience, updates = PATIENCE if config.patience == "auto" else (config.patience, 0)
    n, is_over = at.evaluations_since_best, at.step - (at.best_step or 0) >= updates
    if patience and n >= patience and is_over:
        return f"no better in {n} evaluations"
    return ""


def _begin(run: Run, batches: BatchIterator) -> Started:
    """Check the memory and choose the fastest arithmetic before the first step."""
    config, at, ranks, matrices = run.config, run.progress, run.ranks, shapes(run.network)
    if config.check_memory and at.step == 0:
        inputs = batches.first().inputs
        fitting = Fitting(config, ranks, run.adapter, None if run.teacher is None else run.teacher.config)
        ranks.together(lambda: fitting.check_batch(run.network.config, inputs, is_allocated=True))
    why = "as when the run began"
    if not at.precision:
        # Half a batch in float32 keeps about as much as a whole one in bfloat16, and takes half the time.
        choice = choose(run.network, batches.first(half=True), config, run.task, ranks)
        at.precision, at.matmul, why = choice.arithmetic.precision, choice.arithmetic.matmul, choice.why
    elif config.matmul_precision == "auto" and at.matmul not in ranks.first(accurate(matrices, run.device, [])):
        at.matmul, why = "highest", f"the run began with {at.matmul} products, which are not float32 on this machine"
    hand_back_freed_memory()
    run.optimizer.allocate()
    return Started(
        at.step,
        run.network.n_parameters,
        str(at.arithmetic),
        str(run.device),
        performance_options(run, why),
        run.changes,
        n_trained=sum(map(torch.numel, run.optimizer.parameters)),
        unit=run.task.unit,
        evaluates=str(run.task.few or ""),
    )


def _is_finite(run: Run, norm: float) -> bool:
    """Returns True if the update was made; counts skips in a row. Raises NumericError if a skip ends the run."""
    at = run.progress
    at.skipped = 0 if math.isfinite(norm) else at.skipped + 1
    if at.skipped and (run.config.on_nan == "stop" or at.skipped >= MAX_SKIPPED):
        raise NumericError(
            f"step {at.step}: the gradient's norm is {norm}; no weight was touched. Try a lower"
            " training.optimizer.lr, a lower training.clip, or a longer training.schedule.warmup"
        )
    return not at.skipped


def _evaluate(run: Run) -> Evaluated:
    """Evaluates the whole network in the first process."""
    at, task = run.progress, run.task
    model = gathered(run.model, run.ranks) if run.is_sharded else run.model
    evaluation = None
    if model is not None and run.ranks.is_first:
        with Evaluating(model), at.arithmetic.autocast(run.device):
            evaluation = task.evaluate(model)
        forget(model)
    evaluation = run.ranks.first(evaluation)
    assert evaluation is not None
    return record_evaluation(evaluation, task, at)


SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignal:
    """While open, `signal` is the number of the signal that asked the run to stop, or None."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # pyrefly: ignore[bad-argument-type]

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.signal is not None:
            raise SystemExit(128 + number)
        self.signal = number
