"""What tests of tasks share: small networks and recipes, runs by the command line, and what an error says."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.checkpoints.families import preset
from clearhead.cli import main
from clearhead.config import ModelConfig
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.pretrained_start import under_head
from clearhead.runs import resume, start
from clearhead.tasks.registry import validate
from clearhead.tasks.task import Prepared, RecipeTask
from clearhead.training.events import Stepped
from clearhead.training.run import Run
from clearhead.training.train import train

SMALL = {"d_model": 32, "n_layers": 1, "n_heads": 2, "d_ff": 32, "dropout": 0.0, "attn_dropout": 0.0}
TRAINING = {"precision": "fp32", "matmul_precision": "highest", "device": "cpu", "max_tokens": 64, "steps": 6}
SIZES = [word for name, value in SMALL.items() for word in (f"--model.stacks.{name}", str(value))]
"""The words of a command line that make a network small."""


def network_of(task: RecipeTask[Any], name: str = "classifier") -> Transformer:
    """A small network of this preset for a task, in float64."""
    config = preset(name).model_dump()
    for stack in filter(None, (config["encoder"], config["decoder"])):
        stack |= SMALL
        if "vocab_size" in stack["input"]:
            stack["input"] |= {"vocab_size": task.tokenizer.vocab_size}
    torch.manual_seed(0)
    base = Transformer(ModelConfig.model_validate(config))
    fitted = task.fit(base.config)
    is_same = fitted.stacks == base.config.stacks  # The family then gives the head its layers.
    return (under_head(base, fitted.head, seed=0) if is_same else Transformer(fitted)).double().eval()


def tables_of(task: str, train: Mapping[str, Any], preset: str = "classifier", **fields: Any) -> dict[str, Any]:
    """A recipe of few steps, with a checkpoint after each third one, for training data in this source."""
    data = {"train": train, **fields.pop("data", {})}
    training = {**TRAINING, "save_every": 3, **fields.pop("training", {})}
    given = {"tokenizer": {"kind": "words"}, "model": {"preset": preset, "stacks": SMALL}, **fields}
    return {"task": task, "data": data, "training": training, **given}


def write_rows(name: str, rows: Any) -> str:
    """Writes JSON lines."""
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return name


def begin(tables: Mapping[str, Any], folder: str = "run") -> tuple[Run, Prepared]:
    """A new run of a recipe."""
    return start(validate(tables, where="x"), Path(folder))


def run_of(tables: Mapping[str, Any], folder: str = "run") -> Run:
    """A run of a recipe to its end."""
    run, _ = begin(tables, folder)
    for _ in train(run):
        pass
    return run


def losses(run: Run) -> dict[int, float]:
    """The loss of each step of a run to its end."""
    return {event.step: event.loss for event in train(run) if isinstance(event, Stepped)}


def check_refused(tables: Mapping[str, Any], message: str) -> None:
    """The recipe is refused with this text, before anything is written."""
    with pytest.raises(UserError) as error:
        begin(tables)
    assert message in str(error.value)
    assert not Path("run").exists()


def check_resumed(tables: Mapping[str, Any], steps: int = 6) -> Prepared:
    """A run that stopped half-way goes on with the losses of one that did not; its data, as it reads them again."""

    def of(n: int, folder: str) -> Run:
        return begin({**tables, "training": {**tables["training"], "steps": n, "save_every": steps // 2}}, folder)[0]

    whole = losses(of(steps, "whole"))
    losses(of(steps // 2, "part"))
    run, prepared = resume(Path("part"), changes={"steps": steps})
    assert losses(run) == {step: loss for step, loss in whole.items() if step > steps // 2}
    return prepared


def trained(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    """The figures that `clearhead train LINE --json` prints for a small network in the folder `run`, and its lines."""
    first, *words = line.split()
    main(["train", first, *SIZES, *words, "--out", "run", "--precision", "fp32", "--json"])
    printed = capsys.readouterr()
    return json.loads(printed.out), printed.err
