"""The training loop: `for event in train(...)`. Progress bars, logs and pages are consumers of its events."""

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from clearhead.errors import NumericError, UserError
from clearhead.model import Transformer
from clearhead.model.dropout import cheap_dropout
from clearhead.model.mode import Evaluating
from clearhead.model.packing import forget
from clearhead.randomness import key
from clearhead.recipe.training import Training
from clearhead.tasks.task import Batch, Task
from clearhead.training import checkpoints
from clearhead.training.best import judged
from clearhead.training.events import Ended, Evaluated, Event, Skipped, Started, Stepped
from clearhead.training.fitting import check_batch
from clearhead.training.length import Length, Progress
from clearhead.training.levers import levers, set_levers
from clearhead.training.lock import held
from clearhead.training.machine import hand_back_freed_memory, prepare_machine
from clearhead.training.optimizers import build
from clearhead.training.parts import parts
from clearhead.training.precision import accurate, choose
from clearhead.training.ranks import ALONE, Ranks
from clearhead.training.rounding import require_one, store_in_bfloat16
from clearhead.training.saving import Saver
from clearhead.training.schedules import factor
from clearhead.training.sharding import clip, divide, gathered, gradients_stay, is_sharded, replicated
from clearhead.training.signals import Stop
from clearhead.training.tensors import all_finite, model_tensors, restore, saved_tensors

MAX_SKIPPED = 10


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
    ranks: Ranks = ALONE
    """The processes that train it together."""

    def __post_init__(self) -> None:
        self.device = self.ranks.device(prepare_machine(self.config))
        self.network.to(self.device)
        set_levers(self.network, self.config)
        self.mean = copy.deepcopy(self.network).eval() if self.config.ema is not None else None
        if self.config.weights == "bf16":
            require_one(self.ranks)
            store_in_bfloat16(self.network)
        self.is_sharded = is_sharded(self.config, self.ranks)
        for network in filter(None, (self.network, self.mean)):
            divide(network, self.config, self.ranks)
        self.optimizer = build(self.network, self.config.optimizer)
        self.replica = replicated(self.network, self.config, self.ranks)
        self.forward: Callable[..., Tensor] = torch.compile(self.replica) if self.config.compile else self.replica

    @property
    def model(self) -> Transformer:
        """The network that is evaluated and kept: the mean of the weights where there is one."""
        return self.network if self.mean is None else self.mean

    def checkpoint(self) -> checkpoints.Files:
        """Everything needed to go on, or to use the model."""
        tensors = {
            "model.safetensors": saved_tensors(self.model),
            "optimizer.safetensors": self.optimizer.state_tensors(),
        }
        if self.mean is not None:
            tensors["training.safetensors"] = saved_tensors(self.network)
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
        tensors, state = all_finite(saved.tensors, where=str(folder)), saved.json["train.json"]
        weights = "model.safetensors" if self.mean is None else "training.safetensors"
        networks = {weights: self.network}
        if self.mean is not None:
            networks["model.safetensors"] = self.mean
        for file, network in networks.items():
            restore(network, parts(tensors[file], like=model_tensors(network)), where=f"{folder}/{file}")
        state_tensors = parts(tensors["optimizer.safetensors"], like=self.optimizer.state_tensors())
        self.optimizer.load_state_tensors(state_tensors, where=f"{folder}/optimizer.safetensors")
        known = {name: state[name] for name in vars(Progress()) if name in state}
        self.progress = Progress(**known)  # pyrefly: ignore[bad-argument-type]


def train(run: Run) -> Iterator[Event]:
    """Train until a limit, a signal or early stopping; yields what happens, in order.

    The loss of an update is its tokens' mean, whatever the number of batches it took. Data order, dropout and
    evaluation are functions of (seed, step), so a run that was stopped and resumed repeats the losses of one that was
    not: bit for bit in eager mode on one machine with one number of threads, when its limit is steps or epochs.
    Raises NumericError before an update with a gradient that is not finite, and UserError where another process writes
    to the run's folder, which is locked until the last event has been used.
    """
    with nullcontext() if run.folder is None else held(run.folder, run.ranks):
        yield from _train(run)


def _train(run: Run) -> Iterator[Event]:
    config, at = run.config, run.progress
    require_limit(config)
    length = Length.of(config, len(run.task.plan(seed=config.seed, epoch=0)))
    feed = Feed(run)
    yield _begin(run, feed)
    clock = time.perf_counter() - at.seconds
    with (
        at.arithmetic.products(),
        cheap_dropout(config.cheap_dropout),
        Stop() as stop,
        Saver(run.folder, run.ranks, at.step, shared=run.is_sharded, in_background=config.save_in_background) as saver,
    ):
        while True:
            at.seconds, signal, written = run.ranks.agree(at.seconds, stop.signal, saver.is_done)
            yield from saver.finish(now=written)
            over, is_best = _over(config, length, at), False
            # What a signal left no time for is made up for when the run goes on: the best is the best all the same.
            due = at.evaluated < at.step and (over or at.step % length.evaluate_every == 0)
            if due and signal is None:
                yield (evaluated := _evaluate(run))
                at.seconds, signal, _ = run.ranks.agree(time.perf_counter() - clock, stop.signal, saver.is_done)
                is_best, over = evaluated.is_best, _over(config, length, at)
            reason = "stopped" if signal is not None else over
            keep = reason or is_best or at.step == 1 or at.step % length.save_every == 0
            if run.folder is not None and at.step > saver.step and keep:
                yield from saver.save(at.step, run.checkpoint())
            if reason:
                yield from saver.finish()
                break
            batches = feed.next()
            lr = factor(config.schedule, at.step + 1, length.done(at))
            loss, norm, n_tokens = _update(run, batches, lr)
            at.step += 1
            at.seconds = time.perf_counter() - clock
            if _is_finite(run, norm):
                at.n_tokens += n_tokens
                yield Stepped(at.step, at.epoch, loss, lr, norm, n_tokens, at.seconds, length.done(at))
            else:
                yield Skipped(at.step, norm)
    yield Ended(at.step, at.seconds, reason, signal)


def _over(config: Training, length: Length, at: Progress) -> str:
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


def _begin(run: Run, feed: "Feed") -> Started:
    """Look before the first step: at the memory there is, and at what is fastest here."""
    config, at, ranks = run.config, run.progress, run.ranks
    if config.check_memory and at.step == 0:
        inputs = feed.first().inputs
        ranks.together(lambda: check_batch(run.network.config, inputs, config, ranks, is_allocated=True))
    why = "as when the run began"
    if not at.precision:
        # Half a batch in float32 keeps about as much as a whole one in bfloat16, and takes half the time.
        choice = choose(run.network, feed.first(half=True), config, run.task, ranks)
        at.precision, at.matmul, why = choice.arithmetic.precision, choice.arithmetic.matmul, choice.why
    elif config.matmul_precision == "auto" and at.matmul not in ranks.first(accurate(run.network, run.device, [])):
        at.matmul, why = "highest", f"the run began with {at.matmul} products, which are not float32 on this machine"
    hand_back_freed_memory()
    run.optimizer.allocate()
    n_parameters = sum(p.numel() for p in run.network.parameters())
    return Started(at.step, n_parameters, str(at.arithmetic), str(run.device), levers(run, why))


class Feed:
    """The batches of each update, epoch after epoch, from where the run is."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.plan = run.task.plan(seed=run.config.seed, epoch=run.progress.epoch)

    def first(self, *, half: bool = False) -> Batch:
        """This process's share of a batch or of half of it, to try things on; the feed does not move."""
        examples = self.plan[0]
        examples = examples[: (len(examples) + 1) // 2] if half else examples
        return self.run.task.collate(self.run.ranks.share(examples) or examples[:1]).to(self.run.device)

    def next(self) -> list[tuple[Batch, bool]]:
        """This process's share of as many batches as one update takes; False: not a share, but an example to go on."""
        run, at = self.run, self.run.progress
        batches: list[tuple[Batch, bool]] = []
        while len(batches) < run.config.accumulate:
            if at.batch >= len(self.plan):
                at.epoch, at.batch = at.epoch + 1, 0
                self.plan = run.task.plan(seed=run.config.seed, epoch=at.epoch)
            examples = self.plan[at.batch]
            mine = run.ranks.share(examples)
            batches.append((run.task.collate(mine or examples[:1]).to(run.device), len(mine) > 0))
            at.batch += 1
        return batches


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


def _update(run: Run, batches: Sequence[tuple[Batch, bool]], lr: float) -> tuple[float, float, int]:
    """One step of the optimizer on the mean loss of these batches, with those of the other processes.

    Returns that loss, the gradient's norm and the number of tokens.
    """
    config, at, ranks = run.config, run.progress, run.ranks
    run.network.train()
    torch.manual_seed(key(config.seed, "step", at.step, *([ranks.data_rank] if ranks.data_rank else [])))
    count = round(ranks.sum(sum(batch.count for batch, counts in batches if counts)))
    total = 0.0
    for i, (batch, counts) in enumerate(batches):
        with gradients_stay(run.replica) if i + 1 < len(batches) else nullcontext():
            with at.arithmetic.autocast(run.device):
                loss, _ = run.task.loss(run.forward, batch, smoothing=config.label_smoothing)
            # The mean over processes, which they make of their gradients, times their number is the sum.
            (loss * (ranks.data_size if counts else 0) / count).backward()
        total += loss.item() if counts else 0.0
    total = ranks.sum(total)
    norm = clip(run.optimizer.parameters, config.clip if config.clip is not None else math.inf)
    if math.isfinite(total) and math.isfinite(norm):
        run.optimizer.set_lr(lr)
        run.optimizer.step()
        if run.mean is not None and config.ema is not None:
            average_into(run.mean, run.network, min(config.ema, (1 + at.step) / (10 + at.step)))
    run.optimizer.zero_grad()
    return total / count, norm if math.isfinite(total) else math.nan, count


@torch.no_grad()
def average_into(mean: nn.Module, network: nn.Module, decay: float) -> None:
    """mean <- decay mean + (1 - decay) weights"""
    means: list[Tensor] = [p.data for p in mean.parameters()]
    weights: list[Tensor] = [p.data for p in network.parameters()]
    if all(a.dtype == b.dtype for a, b in zip(means, weights, strict=True)):
        torch._foreach_lerp_(means, weights, 1 - decay)
    else:
        for a, b in zip(means, weights, strict=True):
            a.lerp_(b.to(a.dtype), 1 - decay)


def _evaluate(run: Run) -> Evaluated:
    """By the first process, on the whole network."""
    at, task = run.progress, run.task
    model = gathered(run.model, run.ranks) if run.is_sharded else run.model
    evaluation = None
    if model is not None and run.ranks.is_first:
        with Evaluating(model), at.arithmetic.autocast(run.device):
            evaluation = task.evaluate(model)
        forget(model)
    evaluation = run.ranks.first(evaluation)
    assert evaluation is not None
    return judged(evaluation, task, at)
