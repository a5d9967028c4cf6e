"""One contestant that fine-tunes a checkpoint, in a process of its own: `python -m benchmarks.contestants.tuner`.

The first line in is the assignment; the answer to it is the number of its weights. Each further line is a number of
updates, whose answer is what they took. Both contestants train with their own loop, in one precision, on batches of
examples of about one length.
"""

import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch

from clearhead.config import Config
from clearhead.runs import begin
from clearhead.tasks.classification.task import Classification
from clearhead.tasks.registry import validate
from clearhead.tasks.tagging.task import Tagging
from clearhead.training.events import Stepped
from clearhead.training.run import Run
from clearhead.training.train import train

Job = Literal["ewt", "sst2"]
Precision = Literal["fp32", "bf16"]
OURS = "clearhead"
PEER = "transformers Trainer"
BATCH, LR = 32, 1e-4
"""Examples of a batch: exactly for the peer, on average for ours, whose batches hold a number of tokens."""


class Assignment(Config):
    """Whom to be, and on what."""

    kind: str
    job: Job
    data: Path
    checkpoint: Path
    threads: int | None
    precision: Precision = "bf16"


class Turn(Config):
    """Some updates in a row."""

    n_examples: int
    n_tokens: int
    """Of the examples, without padding."""
    seconds: float
    cpu_seconds: float
    loss: float
    """Of the last update, in nats a label."""


def tables(a: Assignment) -> dict[str, Any]:
    """The recipe of ours."""
    if a.job == "ewt":
        folder = a.data / "ud_english_ewt"
        train, valid = folder / "en_ewt-ud-train.conllu.gz", folder / "en_ewt-ud-dev.conllu"
        data: dict[str, Any] = {"train": {"kind": "tagged", "paths": str(train)}}
        data |= {"valid": {"kind": "tagged", "paths": str(valid)}}
    else:
        source = {"kind": "table", "format": "tsv", "text": 0}
        files = {"train": "train.tsv", "valid": "dev.tsv"}
        data = {split: {**source, "path": str(a.data / "sst2" / name)} for split, name in files.items()} | {"label": 1}
    return {
        "task": "tagging" if a.job == "ewt" else "classification",
        "data": data,
        "model": {"start": str(a.checkpoint)},
        "training": {
            "steps": 1_000_000,
            "precision": a.precision,
            "device": "cpu",
            "threads": a.threads,
            "evaluate_every": 1_000_000,
            "save_every": 1_000_000,
            "optimizer": {"kind": "adamw", "lr": LR, "betas": [0.9, 0.999], "eps": 1e-8},
            "schedule": {"kind": "constant"},
        },
    }


class Clock:
    """Answers each line that asks for updates when they are done, and waits for the next."""

    def __init__(self) -> None:
        self.left = self.n_examples = self.n_tokens = 0
        self.wall = self.cpu = 0.0

    def ask(self) -> None:
        """Wait for the next line, and begin to count."""
        line = sys.stdin.readline()
        if not line:
            sys.exit()
        self.left, self.n_examples, self.n_tokens = int(line), 0, 0
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def updated(self, n_examples: int, n_tokens: int, loss: float) -> None:
        """Count an update."""
        self.left, self.n_examples, self.n_tokens = (
            self.left - 1,
            self.n_examples + n_examples,
            self.n_tokens + n_tokens,
        )
        if not self.left:
            took = {"seconds": time.perf_counter() - self.wall, "cpu_seconds": time.process_time() - self.cpu}
            turn = Turn(n_examples=self.n_examples, n_tokens=self.n_tokens, loss=loss, **took)
            print(turn.model_dump_json(), flush=True)
            self.ask()


def ours(run: Run, lengths: Sequence[int], clock: Clock) -> None:
    """The loop of `clearhead train`."""
    batches = (examples for epoch in range(1000) for examples in run.task.plan(seed=run.config.seed, epoch=epoch))
    clock.ask()
    for event in train(run):
        if isinstance(event, Stepped):
            examples = next(batches)
            clock.updated(len(examples), sum(lengths[i] for i in examples), event.loss)


def peer(a: Assignment, task: Tagging | Classification, ids: Sequence[Sequence[int]], clock: Clock) -> None:
    """The loop of the reference library's Trainer, on the same ids and labels."""
    import transformers

    transformers.logging.set_verbosity_error()
    names = task.tags if isinstance(task, Tagging) else task.labels
    kind = "TokenClassification" if isinstance(task, Tagging) else "SequenceClassification"
    wanted = {"num_labels": len(names), "ignore_mismatched_sizes": True, "dtype": torch.float32}
    model = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(a.checkpoint, **wanted)
    rows: Any = [{"input_ids": torch.tensor(row), "labels": task.collate([i]).labels} for i, row in enumerate(ids)]
    made: deque[tuple[int, int]] = deque()
    losses: deque[float] = deque([0.0], maxlen=1)

    def collate(examples: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        def padded(rows: list[torch.Tensor], fill: int) -> torch.Tensor:
            return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=fill)

        inputs = [one["input_ids"] for one in examples]
        labels = [one["labels"] for one in examples]
        made.append((len(inputs), sum(map(len, inputs))))
        return {
            "input_ids": padded(inputs, task.tokenizer.pad_id or 0),
            "attention_mask": padded([torch.ones_like(row) for row in inputs], 0),
            "labels": padded(labels, -100) if isinstance(task, Tagging) else torch.cat(labels),
        }

    class Timed(transformers.Trainer):
        def compute_loss(self, *inputs: Any, **options: Any) -> Any:
            found = super().compute_loss(*inputs, **options)
            losses.append((found[0] if isinstance(found, tuple) else found).item())
            return found

    class Told(transformers.TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.updated(*made.popleft(), losses[0])

    with TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder,
            per_device_train_batch_size=BATCH,
            learning_rate=LR,
            lr_scheduler_type="constant",
            max_steps=1_000_000,
            bf16=a.precision == "bf16",
            use_cpu=True,
            train_sampling_strategy="group_by_length",
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = Timed(model=model, args=arguments, train_dataset=rows, data_collator=collate, callbacks=[Told()])
        clock.ask()
        trainer.train()


def main() -> None:
    """Read the assignment, build the contestant, and train as long as there are lines."""
    a = Assignment.model_validate_json(sys.stdin.readline())
    if a.threads is not None:
        torch.set_num_threads(a.threads)
    recipe, network, prepared = begin(validate(tables(a), where="benchmark"))
    task = prepared.task
    assert isinstance(task, Tagging | Classification)
    ids = [part.ids for part in task.train.inputs.parts] if isinstance(task, Tagging) else task.train.inputs.ids
    lengths = [*map(len, ids)]
    task.max_tokens = round(BATCH * sum(lengths) / len(lengths))
    # No batch fills its budget, so that 3% fewer examples would share the cost of an update.
    task.max_tokens = round(task.max_tokens * BATCH * len(task.plan(seed=0, epoch=0)) / len(lengths))
    print(sum(weight.numel() for weight in network.parameters()), flush=True)
    if a.kind == OURS:
        ours(Run(network, task, recipe.training, None), lengths, Clock())
    else:
        del network
        peer(a, task, ids, Clock())


if __name__ == "__main__":
    main()
