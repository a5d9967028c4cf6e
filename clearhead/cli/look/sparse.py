"""Training of sparse features: the texts, the progress on the console, and the report."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from clearhead.analysis.features import (
    Ended,
    Features,
    Report,
    Settings,
    Site,
    Stepped,
    effect_on_logits,
    train,
)
from clearhead.api import Model
from clearhead.api.steering import batches_of
from clearhead.cli.options import tell
from clearhead.cli.use.inputs import texts_in
from clearhead.data.files import read_text
from clearhead.errors import UserError
from clearhead.json_text import JsonObject
from clearhead.model import Tokens
from clearhead.runs import prepare_task, task_of

HELD_OUT = 10
"""One of so many batches is kept from training, and measured at the end."""
LENGTH = 256
"""Most tokens of a window of running text."""
AT_ONCE = 4096
"""Tokens of a batch."""
MEASURED = 32
"""Most batches that are measured."""
SHOWN_EVERY = 5.0
"""Seconds between two lines about the training."""


LabelledBatch: TypeAlias = tuple[Sequence[Tokens], Tensor | None]
"""What a network reads, and for a model with a loss the labels."""


def split(texts: Sequence[LabelledBatch]) -> tuple[list[LabelledBatch], list[LabelledBatch]]:
    """What to train on, and what to measure on. Raises UserError if there is too little for both."""
    if len(texts) < 2:
        raise UserError("--data: expected at least two batches of texts, got fewer; give more text")
    return [one for i, one in enumerate(texts) if i % HELD_OUT], [*texts[::HELD_OUT]][:MEASURED]


def trained(model: Model, texts: Sequence[LabelledBatch], site: Site, settings: Settings) -> Features:
    """The features after the training, which prints how far it is."""
    shown = 0.0
    for event in train(model.network, [inputs for inputs, _ in texts], site, settings):
        match event:
            case Stepped() if event.seconds >= shown:
                shown = event.seconds + SHOWN_EVERY
                tell(
                    f"step {event.step}  {event.progress:.0%}  variance explained {event.explained:.1%}"
                    f"  {event.n_dead} dead  {event.n_positions:,} positions"
                )
            case Ended():
                return event.features
            case _:
                pass
    raise AssertionError


def figures(found: Report) -> JsonObject:
    """The report as JSON."""
    return {**asdict(found), "recovered": found.recovered, "recovered_from_mean": found.recovered_from_mean}


def number(width: str, model: Model, site: Site) -> int:
    """The number of features: 4096, or 16x for sixteen times the width of the stack."""
    times = width.endswith("x")
    digits = width.removesuffix("x")
    if not digits.isdigit() or not int(digits):
        raise UserError(f"--width: expected a number of features such as 4096, or 16x, got {width!r}")
    return int(digits) * (model.config.stacks[site.reads.split(".")[0]].d_model if times else 1)  # type: ignore[index]


def words(model: Model, features: Features, feature: int) -> str:
    """The words that a feature makes likelier, if it writes to a language model's stream."""
    if not model.config.predicts_tokens:
        return ""
    try:
        likelier = effect_on_logits(model.network, features, feature).topk(3).indices.tolist()
    except UserError:
        return ""
    return f" ({' '.join(model.tokenizer.decode([i]).strip() or '␣' for i in likelier)})"


# --- the texts ----------------------------------------------------------------------------------------------------


def batches(model: Model, name: str, data: Path | None) -> list[LabelledBatch]:
    """Batches of a file, or of the data of the run that the model comes from.

    A language model reads windows of the file's running text, any other model a line as a text; an encoder-decoder a
    source and a target with a tab between them.
    """
    if data is None:
        return _of_run(model, name)
    if model.config.continues_texts:
        return _windows(model, read_text(data))
    texts = texts_in(data, pairs=model.is_encoder_decoder)
    return [(inputs, None) for inputs in batches_of(model, texts)]


def _of_run(model: Model, name: str) -> list[LabelledBatch]:
    _, recipe = task_of(name, model)
    if recipe is None:
        raise UserError(f"{name}: expected --data FILE with a model that is no run, got none")
    task = prepare_task(recipe, model.tokenizer if model.has_tokenizer else None).task
    found = (task.collate(rows).to(model.device) for rows in task.plan(seed=0, epoch=0))
    return [(batch.inputs, batch.labels) for batch in found]


def _windows(model: Model, text: str) -> list[LabelledBatch]:
    """Windows of running text, each after the marks with which the tokenizer begins a text."""
    before = model.reader.special_tokens().before
    ids = model.reader.known(model.tokenizer.encode(text))
    limit = min(LENGTH, model.config.output.max_length or LENGTH)
    size = min(limit - len(before), max(1, len(ids) // 8))
    found: list[LabelledBatch] = []
    windows = [ids[i : i + size + 1] for i in range(0, len(ids) - size, size)]
    rows = max(1, AT_ONCE // limit)
    for at in range(0, len(windows), rows):
        some = torch.tensor([[*before, *window] for window in windows[at : at + rows]])
        found.append(([model.here(Tokens(some[:, :-1]))], some[:, 1:].flatten().to(model.device)))
    return found
