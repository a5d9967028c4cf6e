"""Runs small enough to repeat many times: 16 wide, a few pairs or a few lines of text, dropout on."""

import hashlib
import json
import math
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from clearhead.api import Model, architecture
from clearhead.config import ModelConfig
from clearhead.data.encoded import EncodedPairs, EncodedText
from clearhead.data.sources import Pairs
from clearhead.model import Transformer
from clearhead.recipe import ModelChoice, changed, merge, nested, read
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import Words
from clearhead.recipe.training import AdamW, Constant, Muon, Training
from clearhead.runs import Keeper, start
from clearhead.storage import checkpoints
from clearhead.storage.tensors import model_tensors
from clearhead.tasks.evaluation import Evaluation
from clearhead.tasks.language_model import LanguageModel
from clearhead.tasks.registry import validate
from clearhead.tasks.scores import Score
from clearhead.tasks.task import Batch, Task
from clearhead.tasks.translation import Translation
from clearhead.text.tokenizers import Tokenizer
from clearhead.training.events import Event, Stepped
from clearhead.training.run import Run
from clearhead.training.train import train

Kind = Literal["translation", "lm"]
GENERATION = GenerationConfig(max_new_tokens=8)
SMALL = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 32, "dropout": 0.2}
OPTIMIZERS: dict[str, AdamW | Muon] = {
    "adamw": AdamW(lr=3e-3, weight_decay=0.1),
    "muon": Muon(lr=3e-3, weight_decay=0.1),
}
NUMBERS = "one two three four five six seven eight nine ten".split()
ZAHLEN = "eins zwei drei vier fünf sechs sieben acht neun zehn".split()


def number_pairs(n: int, *, seed: int = 0) -> Pairs:
    """English numbers, and the same in German backwards: 1 to 6 words."""
    draw = random.Random(seed)
    words = [[draw.randrange(10) for _ in range(draw.randint(1, 6))] for _ in range(n)]
    return Pairs(
        [" ".join(NUMBERS[i] for i in one) for one in words],
        [" ".join(ZAHLEN[i] for i in reversed(one)) for one in words],
    )


def encoded(tokenizer: Tokenizer, pairs: Pairs) -> EncodedPairs:
    return EncodedPairs(pairs, tokenizer.encode_batch(pairs.source), tokenizer.encode_batch(pairs.target))


def translation(n: int = 24, *, max_tokens: int = 60, packed: bool = True) -> Translation:
    pairs = number_pairs(n)
    tokenizer = Tokenizer.train([*pairs.source, *pairs.target], Words())
    train, valid = (encoded(tokenizer, p) for p in (pairs, number_pairs(4, seed=1)))
    return Translation(tokenizer, train, valid, max_tokens=max_tokens, packed=packed, generation=GENERATION)


def language() -> LanguageModel:
    train_text, valid = (" ".join(number_pairs(n, seed=n).source) for n in (60, 12))
    tokenizer = Tokenizer.train([train_text], Words())
    texts = [text_of([text], tokenizer) for text in (train_text, valid)]
    return LanguageModel(tokenizer, *texts, length=12, max_tokens=48, generation=GENERATION)


def text_of(documents: list[str], tokenizer: Tokenizer) -> EncodedText:
    """One runs on, several are documents."""
    pieces = [[document] for document in documents]
    return EncodedText.of(pieces, tokenizer, running=len(documents) == 1, generation=GENERATION)


def task_of(kind: Kind) -> Task:
    return translation() if kind == "translation" else language()


def new_network(task: Task, *, seed: int = 0, **stacks: Any) -> Transformer:
    task = task.inner if isinstance(task, Around) else task
    assert isinstance(task, Translation | LanguageModel)
    preset = "demo" if isinstance(task, Translation) else "nano"
    torch.manual_seed(seed)
    return Transformer(architecture(ModelChoice(preset=preset, stacks={**SMALL, **stacks}), task.tokenizer.vocab_size))


def new_run(task: Task, folder: Path | None = None, *, dropout: float = 0.2, seed: int = 0, **settings: Any) -> Run:
    """A run of `steps` (default 12), in fp32 unless asked otherwise."""
    defaults = {
        "steps": 12,
        "precision": "fp32",
        "matmul_precision": "highest",
        "device": "cpu",
        "schedule": Constant(warmup=3),
        "seed": seed,
    }
    config = Training.model_validate({**defaults, "evaluate_every": 1000, **settings})
    return Run(new_network(task, seed=seed, dropout=dropout), task, config, folder)


def go_on(task: Task, folder: Path, *, at: int | None = None, out: Path | None = None, **settings: Any) -> Run:
    """A new process's run, from a checkpoint in `folder`: the newest, or that of step `at`; it saves to `out`."""
    run = new_run(task, out, **settings)
    for parameter in run.network.parameters():
        torch.nn.init.normal_(parameter)  # What is not restored is wrong.
    newest = checkpoints.latest(folder) if at is None else folder / f"step-{at:08d}"
    assert newest is not None
    run.restore(newest)
    return run


def losses(events: Iterable[Event]) -> dict[int, str]:
    """Every loss, to the bit."""
    return {event.step: event.loss.hex() for event in events if isinstance(event, Stepped)}


def finish(run: Run) -> dict[int, str]:
    return losses(train(run))


def digest(tensors: Mapping[str, Tensor]) -> str:
    sha = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        sha.update(name.encode() + tensor.detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def state(run: Run) -> dict[str, str]:
    """SHA-256 of all that training changes."""
    mean = {} if run.mean is None else model_tensors(run.mean)
    parts = {"weights": model_tensors(run.network), "mean": mean, "optimizer": run.optimizer.state_tensors()}
    return {name: digest(tensors) for name, tensors in parts.items()}


class Around(Task):
    """A task with something done to its losses or its score; counts its losses. A score below `smoothed` is one."""

    def __init__(
        self,
        inner: Task,
        *,
        loss: Callable[[Tensor, int], Tensor] = lambda total, _: total,
        scores: Iterable[float] = (),
        losses: Iterable[float] = (),
        smoothed: float = -math.inf,
        plan: list[list[int]] | None = None,
    ) -> None:
        self.inner, self.change, self.batches = inner, loss, plan
        self.scores, self.log_losses, self.smoothed = list(scores), list(losses), smoothed
        self.main_score, self.higher_is_better = inner.main_score, inner.higher_is_better
        self.n_losses = 0

    def plan(self, *, seed: int, epoch: int):
        return self.batches or self.inner.plan(seed=seed, epoch=epoch)

    def collate(self, examples):
        return self.inner.collate(examples)

    def fit(self, config: ModelConfig) -> ModelConfig:
        return self.inner.fit(config)

    def loss(self, network: Callable[..., Tensor], batch: Batch, *, smoothing: float = 0.0) -> tuple[Tensor, int]:
        total, count = self.inner.loss(network, batch, smoothing=smoothing)
        self.n_losses += 1
        return self.change(total, self.n_losses), count

    def evaluate(self, network: Transformer) -> Evaluation:
        if not self.scores:
            return self.inner.evaluate(network)
        loss, value = self.log_losses.pop(0) if self.log_losses else math.nan, self.scores.pop(0)
        return Evaluation((Score(self.main_score, value, is_smoothed=value < self.smoothed),), loss=loss)


# --- files ------------------------------------------------------------------------------------------------------


def write_pairs(folder: Path, n: int = 40) -> dict[str, str]:
    pairs = number_pairs(n)
    for name, lines in (("a.en", pairs.source), ("a.de", pairs.target)):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"kind": "parallel", "source": str(folder / "a.en"), "target": str(folder / "a.de")}


def write_recipe(folder: Path, **training: Any) -> Path:
    """A recipe for `write_pairs` as a TOML file, of 12 steps with a checkpoint at every second."""
    every = {"steps": 12, "max_tokens": 60, "evaluate_every": 4, "save_every": 2}
    settings = {**every, "precision": "fp32", "matmul_precision": "highest", **training}
    tables = {
        "data": {"held_out": 4, "train": write_pairs(folder)},
        "tokenizer": {"kind": "words"},
        "model": {"preset": "demo", "stacks": SMALL},
        "training": settings,
        "generation": {"max_new_tokens": 8},
    }
    path = folder / "tiny.toml"
    path.write_text('task = "translation"\n' + "".join(_toml(k, v) for k, v in tables.items()), encoding="utf-8")
    return path


def tables(folder: str, **changes: Any) -> dict[str, Any]:
    """A translator of four steps as the tables of a recipe, and a saved model of the task in `folder`, here."""
    if not Path(folder).exists():
        task = translation()
        Model(new_network(task), task.tokenizer, GENERATION).save(folder)
    settings = {"precision": "fp32", "matmul_precision": "highest", "max_tokens": 60, "device": "cpu", "steps": 4}
    given = {
        "task": "translation",
        "data": {"held_out": 4, "train": write_pairs(Path.cwd())},
        "training": {**settings, "save_every": 2},
        "generation": {"max_new_tokens": 8},
    }
    return changed({}, merge(given, changes))


def _toml(name: str, table: Mapping[str, Any]) -> str:
    lines = [f"{k} = {json.dumps(v)}" for k, v in table.items() if not isinstance(v, dict)]
    inner = "".join(_toml(f"{name}.{k}", v) for k, v in table.items() if isinstance(v, dict))
    return f"[{name}]\n" + "\n".join(lines) + "\n" + inner


def begin(recipe: Path, folder: Path, *changes: tuple[str, Any]) -> Run:
    tables = merge(read(str(recipe)), nested([(name, json.dumps(value)) for name, value in changes]))
    return start(validate(tables, where=str(recipe)), folder)[0]


def drive(run: Run) -> list[Event]:
    """As the command does: every event to the keeper."""
    keeper, events = Keeper(run), list[Event]()
    for event in train(run):
        keeper(event)
        events.append(event)
    return events
