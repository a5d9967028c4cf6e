"""What training costs on one GPU, as `clearhead plan` shows it, and the run that a name describes."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from clearhead import recipe as recipes
from clearhead.api import architecture, named_config
from clearhead.config import Continuous, ModelConfig
from clearhead.config.adapter import AdapterConfig
from clearhead.errors import UserError
from clearhead.json_text import JsonObject
from clearhead.model.summary import DEFAULT_LENGTH
from clearhead.recipe.tokenizers import Characters
from clearhead.recipe.training import Training
from clearhead.session.recipes import with_files
from clearhead.tasks.registry import validate
from clearhead.training.planning.memory import Network
from clearhead.training.planning.one_gpu import Cost, Hardware, Job, command, option_effects

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


def show(job: Job, machine: Hardware, found: Cost, subject: Subject, console: Console, carbon: float | None) -> None:
    """Prints what the job costs, and the memory by part, as chosen and with each option reversed.

    `carbon`: grams of CO2 for each kilowatt-hour.
    """
    console.print(
        f"{Network(job.config).weights:,} parameters, {job.tokens:,} tokens of training, {job.batch:,} an update,"
        f" {job.row:,} a row; {machine.name}: {machine.flops / 1e12:,.3g} TFLOP/s at {job.mfu:.0%} MFU,"
        f" {machine.memory / 1e9:,.0f} GB",
        highlight=False,
    )
    if not found.fits:
        console.print(
            f"Nothing fits: the least is {_gb(found.memory.total)} of {_gb(machine.memory)}; try a shorter --length,"
            " a smaller model, or more GPUs (docs/scale.md)",
            highlight=False,
        )
        return
    console.print(_parts(job, machine, found))
    console.print(
        f"{found.tokens_per_second:,.0f} tokens/s, {found.hours:,.3g} hours, {found.kwh:,.3g} kWh at"
        f" {machine.watts:,.0f} W{emitted(found.kwh, carbon)};"
        f" {found.setting.accumulate} batches of {found.shape.rows} x {job.row} an update.",
        highlight=False,
    )
    console.print(command(job, found, subject.recipe), highlight=False, soft_wrap=True)


def _parts(job: Job, machine: Hardware, found: Cost) -> Table:
    alternatives = [("chosen", found), *option_effects(job, machine, found)]
    table = Table("memory", title="The same batch with each option the other way")
    for name, _ in alternatives:
        table.add_column(name, justify="right")
    for part in _bytes(found):
        table.add_row(part, *(_gb(_bytes(one)[part]) for _, one in alternatives), end_section=part == "update")
    table.add_row("worst moment", *(_gb(one.memory.total) for _, one in alternatives))
    table.add_row("update, seconds", *(f"{one.step:.3g}" for _, one in alternatives))
    return table


def _bytes(one: Cost) -> dict[str, int]:
    return {PARTS.get(name, name): n for name, n in vars(one.memory).items() if name != "held_over"}


def emitted(kwh: float, carbon: float | None) -> str:
    """The grams of CO2 of this energy, to append to it; nothing if the grams of a kilowatt-hour are unknown."""
    if not carbon:
        return ""
    grams = kwh * carbon
    return f", {grams:{',.0f' if grams >= 100 else '.3g'}} g CO2"


def to_json(job: Job, machine: Hardware, found: Cost, subject: Subject, carbon: float | None) -> JsonObject:
    """Bytes, seconds and hours; the command is null if nothing fits."""
    memory: JsonObject = {name.replace(" ", "_"): n for name, n in _bytes(found).items()}
    return {
        "gpu": machine.name,
        "mfu": job.mfu,
        "parameters": Network(job.config).weights,
        "tokens": job.tokens,
        "batch": job.batch,
        "command": command(job, found, subject.recipe) if found.fits else None,
        "accumulate": found.setting.accumulate,
        "rows": found.shape.rows,
        "checkpoint_activations": found.setting.checkpointed,
        "fits": found.fits,
        "memory": {**memory, "total": found.memory.total},
        "seconds": {"compute": found.compute, "optimizer": found.optimizer, "update": found.step},
        "tokens_per_second": found.tokens_per_second,
        "hours": found.hours,
        "kwh": found.kwh,
        "co2_grams": found.kwh * carbon if carbon else None,
    }


def _gb(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:,.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:,.1f} MB"
