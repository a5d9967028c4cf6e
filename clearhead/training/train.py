"""The training loop: `for event in train(...)`. Progress bars, logs and pages are consumers of its events."""

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from clearhead.errors import NumericError, UserError
from clearhead.model import Transformer
from clearhead.randomness import key
from clearhead.recipe.training import Training
from clearhead.tasks.task import Batch, Task
from clearhead.training import checkpoints
from clearhead.training.events import Ended, Evaluated, Event, Saved, Skipped, Started, Stepped
from clearhead.training.machine import precision_for, prepare_machine
from clearhead.training.optimizers import build
from clearhead.training.schedules import factor
from clearhead.training.signals import Stop
from clearhead.training.tensors import model_tensors, restore

MAX_SKIPPED = 10


@dataclass
class Progress:
    """Where a run is: all that a checkpoint needs besides tensors."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    """Batches of this epoch already used."""
    n_tokens: int = 0
    seconds: float = 0.0
    precision: str = ""
    best_score: float | None = None
    best_step: int | None = None
    evaluations_since_best: int = 0
    evaluated: int = 0
    """Step of the last evaluation."""
    skipped: int = 0
    """Updates left out in a row."""


@dataclass
class Run:
    """A network in training: its weights, their mean, the optimizer and the place in the data."""

    network: Transformer
    task: Task
    config: Training
    folder: Path | None
    """Where checkpoints go; None keeps nothing."""
    files: checkpoints.Files = field(default_factory=checkpoints.Files)
    """What every checkpoint holds besides the run's own tensors: configuration, tokenizer."""
    progress: Progress = field(default_factory=Progress)

    def __post_init__(self) -> None:
        self.device = prepare_machine(self.config)
        self.network.to(self.device)
        self.optimizer = build(self.network, self.config.optimizer)
        self.mean = copy.deepcopy(self.network).eval() if self.config.ema is not None else None
        self.forward: Callable[..., Tensor] = torch.compile(self.network) if self.config.compile else self.network

    @property
    def model(self) -> Transformer:
        """The network that is evaluated and kept: the mean of the weights where there is one."""
        return self.network if self.mean is None else self.mean

    def checkpoint(self) -> checkpoints.Files:
        """Everything needed to go on, or to use the model."""
        tensors = {
            "model.safetensors": model_tensors(self.model),
            "optimizer.safetensors": self.optimizer.state_tensors(),
        }
        if self.mean is not None:
            tensors["training.safetensors"] = model_tensors(self.network)
        state = vars(self.progress) | {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "device": str(self.device),
        }
        return checkpoints.Files(
            tensors={**self.files.tensors, **tensors},
            json={**self.files.json, "train.json": state},
            raw=self.files.raw,
        )

    def restore(self, folder: Path) -> None:
        """Go on from a checkpoint, exactly."""
        saved = checkpoints.load(folder)
        tensors, state = saved.tensors, saved.json["train.json"]
        if self.mean is not None:
            restore(self.mean, tensors["model.safetensors"], where=f"{folder}/model.safetensors")
        weights = "model.safetensors" if self.mean is None else "training.safetensors"
        restore(self.network, tensors[weights], where=f"{folder}/{weights}")
        self.optimizer.load_state_tensors(tensors["optimizer.safetensors"], where=f"{folder}/optimizer.safetensors")
        known = {name: state[name] for name in vars(Progress()) if name in state}
        self.progress = Progress(**known)  # pyrefly: ignore[bad-argument-type]


def train(run: Run) -> Iterator[Event]:
    """Train until a limit, a signal or early stopping; yields what happens, in order.

    The loss of an update is its tokens' mean, whatever the number of batches it took. Data order, dropout and
    evaluation are functions of (seed, step), so a run that was stopped and resumed repeats the losses of one that was
    not: bit for bit in eager mode on one machine with one number of threads, when its limit is steps or epochs.
    Raises NumericError before an update with a gradient that is not finite.
    """
    config, at = run.config, run.progress
    require_limit(config)
    length = Length.of(config, len(run.task.plan(seed=config.seed, epoch=0)))
    feed = Feed(run)
    if not at.precision:
        at.precision = precision_for(run.network, feed.first(), config, run.task)
    yield Started(at.step, sum(p.numel() for p in run.network.parameters()), at.precision, str(run.device))
    saved, clock = at.step, time.perf_counter() - at.seconds
    with Stop() as stop:
        while True:
            over, is_best = _over(config, length, at), False
            # What a signal left no time for is made up for when the run goes on: the best is the best all the same.
            due = at.evaluated < at.step and (over or at.step % length.evaluate_every == 0)
            if due and stop.signal is None:
                yield (evaluated := _evaluate(run))
                at.seconds = time.perf_counter() - clock
                is_best, over = evaluated.is_best, _over(config, length, at)
            reason = "stopped" if stop.signal is not None else over
            keep = reason or is_best or at.step == 1 or at.step % length.save_every == 0
            if run.folder is not None and at.step > saved and keep:
                saved = at.step
                yield Saved(at.step, checkpoints.save(run.folder, at.step, run.checkpoint()))
            if reason:
                break
            batches = feed.next()
            lr = factor(config.schedule, at.step + 1, length.done(at))
            loss, norm = _update(run, batches, lr)
            at.step += 1
            at.seconds = time.perf_counter() - clock
            n_tokens = sum(batch.n_tokens for batch in batches)
            if _is_finite(run, norm):
                at.n_tokens += n_tokens
                yield Stepped(at.step, at.epoch, loss, lr, norm, n_tokens, at.seconds, length.done(at))
            else:
                yield Skipped(at.step, norm)
    yield Ended(at.step, at.seconds, reason, stop.signal if reason == "stopped" else None)


def _over(config: Training, length: "Length", at: Progress) -> str:
    """Why the run is over, or nothing."""
    if length.done(at) >= 1.0:
        return "finished"
    if config.patience is not None and at.evaluations_since_best >= config.patience:
        return f"no better in {config.patience} evaluations"
    return ""


def require_limit(config: Training) -> None:
    """Nothing, if a run of this configuration ends."""
    if config.steps is None and config.epochs is None and config.minutes is None:
        raise UserError("training: expected a limit, got none; set training.steps, training.epochs or training.minutes")


class Feed:
    """The batches of each update, epoch after epoch, from where the run is."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.plan = run.task.plan(seed=run.config.seed, epoch=run.progress.epoch)

    def first(self) -> Batch:
        """A batch to try things on; the feed does not move."""
        return self.run.task.collate(self.plan[0]).to(self.run.device)

    def next(self) -> list[Batch]:
        """As many batches as one update takes."""
        run, at = self.run, self.run.progress
        batches: list[Batch] = []
        while len(batches) < run.config.accumulate:
            if at.batch >= len(self.plan):
                at.epoch, at.batch = at.epoch + 1, 0
                self.plan = run.task.plan(seed=run.config.seed, epoch=at.epoch)
            batches.append(run.task.collate(self.plan[at.batch]).to(run.device))
            at.batch += 1
        return batches


@dataclass(frozen=True)
class Length:
    """How long a run is, and how often it looks up."""

    steps: int | None
    seconds: float | None
    evaluate_every: int
    save_every: int

    @classmethod
    def of(cls, config: Training, batches_an_epoch: int) -> "Length":
        """From the config; an epoch has as many updates as the first one."""
        limits = [config.steps] if config.steps is not None else []
        if config.epochs is not None:
            limits.append(max(1, round(config.epochs * batches_an_epoch / config.accumulate)))
        evaluate_every = config.evaluate_every or max(1, batches_an_epoch // config.accumulate)
        return cls(
            steps=min(limits, default=None),
            seconds=None if config.minutes is None else 60 * config.minutes,
            evaluate_every=evaluate_every,
            save_every=config.save_every or evaluate_every,
        )

    def done(self, at: Progress) -> float:
        """Share of the run that is done, 0..1: of the limit that is nearest."""
        by_steps = at.step / self.steps if self.steps is not None else 0.0
        by_time = at.seconds / self.seconds if self.seconds is not None else 0.0
        return min(1.0, max(by_steps, by_time))


def _is_finite(run: Run, norm: float) -> bool:
    """Whether the update was made; raises NumericError where a gradient that is not finite ends the run."""
    at = run.progress
    at.skipped = 0 if math.isfinite(norm) else at.skipped + 1
    if at.skipped and (run.config.on_nan == "stop" or at.skipped >= MAX_SKIPPED):
        raise NumericError(
            f"step {at.step}: the gradient's norm is {norm}; no weight was touched. Try a lower"
            " training.optimizer.lr, a lower training.clip, or a longer training.schedule.warmup"
        )
    return not at.skipped


def _update(run: Run, batches: Sequence[Batch], lr: float) -> tuple[float, float]:
    """One step of the optimizer on the mean loss of these batches; returns that loss and the gradient's norm."""
    config, at = run.config, run.progress
    run.network.train()
    torch.manual_seed(key(config.seed, "step", at.step))
    count = sum(batch.n_tokens for batch in batches)
    total = 0.0
    for batch in batches:
        with autocast(run.device, at.precision):
            loss, _ = run.task.loss(run.forward, batch, smoothing=config.label_smoothing)
        (loss / count).backward()
        total += loss.item()
    parameters = run.optimizer.parameters
    norm = nn.utils.clip_grad_norm_(parameters, config.clip if config.clip is not None else math.inf).item()
    if math.isfinite(total) and math.isfinite(norm):
        run.optimizer.set_lr(lr)
        run.optimizer.step()
        if run.mean is not None and config.ema is not None:
            average_into(run.mean, run.network, min(config.ema, (1 + at.step) / (10 + at.step)))
    run.optimizer.zero_grad()
    return total / count, norm if math.isfinite(total) else math.nan


@torch.no_grad()
def average_into(mean: nn.Module, network: nn.Module, decay: float) -> None:
    """mean <- decay mean + (1 - decay) weights"""
    means: list[Tensor] = [p.data for p in mean.parameters()]
    weights: list[Tensor] = [p.data for p in network.parameters()]
    torch._foreach_lerp_(means, weights, 1 - decay)


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """Matrix products in bfloat16 where the precision says so."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()


def _evaluate(run: Run) -> Evaluated:
    at, task = run.progress, run.task
    run.model.eval()
    with autocast(run.device, at.precision):
        evaluation = task.evaluate(run.model)
    score = evaluation.value(task.main_score)
    at.evaluated = at.step
    better = at.best_score is None or (score > at.best_score if task.higher_is_better else score < at.best_score)
    if better := better and math.isfinite(score):
        at.best_score, at.best_step, at.evaluations_since_best = score, at.step, 0
    else:
        at.evaluations_since_best += 1
    return Evaluated(at.step, evaluation, better)
