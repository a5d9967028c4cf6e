"""What training costs on a number of GPUs, as `clearhead plan` shows it, and the run that a name describes."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue
from rich.console import Console
from rich.table import Table

from clearhead import recipe as recipes
from clearhead.api import architecture, named_config
from clearhead.config import Continuous, ModelConfig
from clearhead.config.adapter import AdapterConfig
from clearhead.errors import UserError
from clearhead.model.summary import DEFAULT_LENGTH
from clearhead.recipe.tokenizers import Characters
from clearhead.recipe.training import Training
from clearhead.session.recipes import with_files
from clearhead.tasks.registry import validate
from clearhead.training.planning.layouts import Alternative, Plan, command, option_effects
from clearhead.training.planning.memory import Network

BATCH = 1 << 19
"""Tokens of an update without a recipe, as for models of some hundred million parameters (Brown et al. 2020)."""
TOKENS_A_PARAMETER = 20
"""Tokens of training for each parameter, unless --tokens is given (Hoffmann et al. 2022)."""
CHARACTERS = 100
"""Size of the alphabet, which is not known before the text is read."""
SENTENCE = 32
"""Tokens of a sequence of a task that sets no length for its data."""
WIDTH = 160
PARTS = {
    "copies": "copies and gathered",
    "mean": "mean of weights",
    "logits": "logits and loss",
    "working": "gradients at work",
}
"""Readable names of parts of the memory, if they differ from the names of the fields."""


@dataclass(frozen=True)
class Subject:
    """A training run as a recipe or the name of a model describes it."""

    config: ModelConfig
    training: Training
    source: int
    target: int
    batch: int
    recipe: str
    """The recipe to train with."""
    adapter: AdapterConfig | None = None


def is_recipe(name: str) -> bool:
    """Whether this names a recipe, rather than a model."""
    known = {file.stem for folder in recipes.recipe_folders() for file in folder.glob("*.toml")}
    return Path(name).suffix == ".toml" or (name in known and not Path(name).is_dir())


def subject_of(name: str, length: int | None = None, changes: Mapping[str, Any] | None = None) -> Subject:
    """A recipe (by name or .toml file), a preset, or the model in a folder; `length` replaces its tokens a sequence.

    Raises UserError for any other name, and for more positions than the model has.
    """
    if is_recipe(name):
        return _of_recipe(name, length, changes or {})
    config = named_config(name)
    limits = [stack.max_length for stack in config.stacks.values() if stack.max_length is not None]
    return Subject(
        config, Training(), *_lengths(config, length or min(limits, default=DEFAULT_LENGTH)), BATCH, "RECIPE.toml"
    )


def _of_recipe(name: str, length: int | None, changes: Mapping[str, Any]) -> Subject:
    tables, _ = with_files(recipes.changed(recipes.read(name), changes), where=name)
    recipe = validate(tables, where=name)
    reads, start = recipe.tokenizer, recipe.model.start
    vocab_size = CHARACTERS if isinstance(reads, Characters) else reads.vocab_size
    config = architecture(recipe.model, vocab_size) if start is None else named_config(start)
    pictures, reads = dict(recipe).get("batch_size"), config.first.input
    if pictures is not None and isinstance(reads, Continuous):
        natural, batch = reads.length, pictures * reads.length
    else:
        natural, batch = dict(recipe.data).get("length", SENTENCE), recipe.training.max_tokens
    batch *= recipe.training.accumulate
    return Subject(config, recipe.training, *_lengths(config, length or natural), batch, name, recipe.adapter)


def _lengths(config: ModelConfig, length: int) -> tuple[int, int]:
    for name, stack in config.stacks.items():
        if stack.max_length is not None and length > stack.max_length:
            raise UserError(
                f"--length: expected at most {stack.max_length}, the positions of the {name}, got {length};"
                f" try --length {stack.max_length}"
            )
    return length if config.encoder else 0, length if config.decoder else 0


def console_of(*, as_json: bool) -> Console:
    """The console for tables: standard error if JSON is printed; without a terminal it is wide enough for them."""
    file = sys.stderr if as_json else sys.stdout
    return Console(file=file, width=None if file.isatty() else WIDTH)


def show(found: Plan, subject: Subject, console: Console) -> None:
    """Prints the tables and a verdict."""
    job, machine = found.job, found.machine
    console.print(
        f"{Network(job.config).weights:,} parameters, {job.tokens:,} tokens of training, {job.batch:,} an update,"
        f" {job.row:,} a row; {found.gpus:,} x {machine.name}: {machine.flops / 1e12:,.3g} TFLOP/s at"
        f" {job.mfu:.0%} MFU, {machine.memory / 1e9:,.0f} GB each, {machine.per_node} a node",
        highlight=False,
    )
    console.print(_layouts(found))
    chosen = found.chosen
    if chosen is None:
        least = min(one.memory.total for one in found.alternatives)
        console.print(
            f"Nothing fits: the least is {_gb(least)} a GPU of {_gb(machine.memory)}; try more --gpus, a shorter"
            " --length or a smaller model",
            highlight=False,
        )
        return
    console.print(_parts(found, chosen))
    console.print(f"Simplest that fits: {chosen.name}.", _faster(found, chosen), highlight=False)
    console.print(command(found, subject.recipe), highlight=False, soft_wrap=True)


def _faster(found: Plan, chosen: Alternative) -> str:
    """A remark if another layout that fits is more than a tenth faster."""
    fastest = max((one for one in found.alternatives if one.fits), key=lambda one: one.tokens_per_second)
    gain = fastest.tokens_per_second / chosen.tokens_per_second
    return f"{fastest.name} would be {gain:.1f} times as fast." if gain > 1.1 else ""


def _layouts(found: Plan) -> Table:
    titles = ("layout", "batch a GPU", "batches", "recompute", "memory", "fits", "compute", "data", "tensor", "hidden")
    table = Table(*titles, "step", "tokens/s", "hours", title="One update: what each layout costs (seconds)")
    for column in table.columns[1:]:
        column.justify = "right"
    for one in found.alternatives:
        times, setting = one.times, one.setting
        seconds = (times.compute + times.optimizer, times.data, times.tensor, times.hidden, times.step)
        table.add_row(
            one.name,
            f"{one.shape.rows} x {found.job.row}",
            f"{setting.accumulate}",
            "blocks" if setting.checkpointed else "no",
            _gb(one.memory.total),
            "yes" if one.fits else "no",
            *(f"{x:.3g}" for x in seconds),
            f"{one.tokens_per_second:,.0f}",
            f"{one.hours:,.3g}",
            style="bold" if one is found.chosen else None,
        )
    return table


def _parts(found: Plan, chosen: Alternative) -> Table:
    """The memory of a GPU by part, in the chosen layout and with each lever reversed."""
    alternatives = [(chosen.name, chosen), *option_effects(found.job, found.machine, chosen)]
    table = Table("memory of a GPU", title="The same batch with each lever the other way")
    for name, _ in alternatives:
        table.add_column(name, justify="right")
    for part in _bytes(chosen):
        table.add_row(part, *(_gb(_bytes(one)[part]) for _, one in alternatives), end_section=part == "update")
    table.add_row("worst moment", *(_gb(one.memory.total) for _, one in alternatives))
    table.add_row("step, seconds", *(f"{one.times.step:.3g}" for _, one in alternatives))
    return table


def _bytes(one: Alternative) -> dict[str, int]:
    return {PARTS.get(name, name): n for name, n in vars(one.memory).items() if name != "held_over"}


def to_json(found: Plan, subject: Subject) -> dict[str, JsonValue]:
    """Bytes and seconds of every layout; `chosen` is the index of the chosen one, null if none fits."""
    chosen = found.chosen
    return {
        "gpus": found.gpus,
        "gpu": found.machine.name,
        "mfu": found.job.mfu,
        "parameters": Network(found.job.config).weights,
        "tokens": found.job.tokens,
        "batch": found.job.batch,
        "chosen": None if chosen is None else found.alternatives.index(chosen),
        "command": None if chosen is None else command(found, subject.recipe),
        "alternatives": [_json(one) for one in found.alternatives],
    }


def _json(one: Alternative) -> JsonValue:
    memory: dict[str, JsonValue] = {name.replace(" ", "_"): n for name, n in _bytes(one).items()}
    setting: dict[str, JsonValue] = vars(one.setting)
    return {
        "layout": one.name,
        **{name: setting[name] for name in ("parallel", "data", "tensor", "accumulate")},
        "rows": one.shape.rows,
        "checkpoint_activations": one.setting.checkpointed,
        "fits": one.fits,
        "memory": {**memory, "total": one.memory.total},
        "seconds": {**vars(one.times), "step": one.times.step, "step_without_overlap": one.times.unhidden},
        "tokens_per_second": one.tokens_per_second,
        "hours": one.hours,
    }


def _gb(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:,.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:,.1f} MB"
