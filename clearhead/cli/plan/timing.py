"""The training steps that `clearhead profile` times, and its tables."""

from collections.abc import Callable, Mapping, Sequence

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from clearhead import recipe as recipes
from clearhead.cli.options import tell
from clearhead.cli.plan.costs import Subject, emitted, is_recipe, subject_of
from clearhead.config import ModelConfig, TokenInput
from clearhead.errors import UserError
from clearhead.json_text import JsonObject
from clearhead.model import Tokens, Transformer
from clearhead.recipe.training import Training
from clearhead.runs import begin
from clearhead.session.recipes import pairs, with_files
from clearhead.tasks.networks import check_writes
from clearhead.tasks.registry import validate
from clearhead.tasks.task import Batch, Evaluation, Task, head_loss
from clearhead.training.planning.fitting import Fitting
from clearhead.training.profile import Profile

BATCH = 4096
"""Tokens of a batch without a recipe."""
OPTIONS = ("steps", "batch", "length", "device", "precision", "watts", "carbon", "json")


class RandomTokens(Task):
    """Batches of random tokens of one shape, which take as much work as real ones without padding."""

    main_score = "loss"
    higher_is_better = False

    def __init__(self, config: ModelConfig, *, rows: int, source: int, target: int, n_batches: int) -> None:
        self.config, self.rows, self.n_batches = config, rows, n_batches
        lengths = {"encoder": source, "decoder": target}
        reads = {name: stack.input for name, stack in config.stacks.items()}
        self.inputs = [(one.vocab_size, lengths[name]) for name, one in reads.items() if isinstance(one, TokenInput)]

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        return [[i] for i in range(self.n_batches)]

    def collate(self, examples: Sequence[int]) -> Batch:
        draw = torch.Generator().manual_seed(examples[0])
        ids = [torch.randint(size, (self.rows, length), generator=draw) for size, length in self.inputs]
        return Batch(tuple(Tokens(one) for one in ids), ids[-1].flatten().roll(-1))

    def fit(self, config: ModelConfig) -> ModelConfig:
        check_writes(config, where="model")
        return config

    def loss(self, network: Callable[..., Tensor], batch: Batch, *, smoothing: float = 0.0) -> tuple[Tensor, int]:
        return head_loss(network, batch, smoothing=smoothing)

    def evaluate(self, network: Transformer) -> Evaluation:
        return Evaluation(())


def prepared(
    name: str,
    changes: Sequence[str],
    *,
    steps: int,
    batch: int | None,
    length: int | None,
    short: Mapping[str, object],
) -> tuple[Transformer, Task, Training]:
    """A network and a task: those of a recipe if its data are there, else random tokens of its size."""
    given = [(f"training.{field}", str(value)) for field, value in short.items() if value is not None]
    changed = recipes.nested([*given, *pairs(changes, options=OPTIONS)])
    if not is_recipe(name):
        if changes:
            raise UserError(f"{changes[0]}: expected a recipe to change, got the model {name}; leave it out")
        subject = subject_of(name, length)
        training = Training.model_validate(changed.get("training", {}))
        return _random(name, subject, training, steps=steps, batch=batch or BATCH)
    tables = recipes.changed(recipes.read(name), changed)
    if not with_files(tables, where=name)[1] and not (batch or length):
        try:
            recipe, network, found = begin(validate(tables, where=name))
            return network, found.task, recipe.training
        except UserError as error:
            if "data" in changed or not isinstance(error.__cause__ or error.__context__, OSError):
                raise
            tell(f"{error}: random tokens instead")
    subject = subject_of(name, length, changed)
    return _random(name, subject, subject.training, steps=steps, batch=batch or subject.training.max_tokens)


def _random(
    name: str, subject: Subject, training: Training, *, steps: int, batch: int
) -> tuple[Transformer, Task, Training]:
    config, row = subject.config, subject.source + subject.target
    check_writes(config, where=name)
    if not all(isinstance(stack.input, TokenInput) for stack in config.stacks.values()):
        raise UserError(f"{name}: expected a model that reads tokens, got one that reads images; try another")
    if batch < row:
        raise UserError(f"--batch: expected at least a sequence of {row} tokens, got {batch}; try a lower --length")
    task = RandomTokens(config, rows=batch // row, source=subject.source, target=subject.target, n_batches=steps)
    return Fitting(training).new_network(config, task), task, training


def show(found: Profile, console: Console, carbon: float | None) -> None:
    """Prints a table and the largest component. `carbon`: grams of CO2 for each kilowatt-hour."""
    table = Table("component", "ms", "share", "GFLOP", "GFLOP/s", "of ceiling", title="One training step")
    for column in table.columns[1:]:
        column.justify = "right"
    for one in found.components:
        rate = one.flops / one.seconds if one.flops and one.seconds else 0.0
        table.add_row(
            one.name,
            f"{1000 * one.seconds:,.2f}",
            f"{one.seconds / found.seconds:.1%}",
            *(
                (f"{one.flops / 1e9:,.2f}", f"{rate / 1e9:,.0f}", f"{rate / found.ceiling:.0%}")
                if rate
                else ("", "", "")
            ),
        )
    table.add_section()
    table.add_row(
        "step",
        f"{1000 * found.seconds:,.2f}",
        f"+-{found.spread / 2:.1%}",
        f"{found.flops / 1e9:,.2f}",
        f"{found.flops_per_second / 1e9:,.0f}",
        f"{found.mfu:.0%}",
    )
    console.print(table)
    largest = found.largest
    console.print(
        f"{found.tokens_per_second:,.0f} tokens/s ({found.tokens:,} a step, {found.precision}, {found.device});"
        f" ceiling {found.ceiling / 1e9:,.0f} GFLOP/s, a large matrix product here; MFU {found.mfu:.0%}",
        f"\n{_energy(found, carbon)}"
        f"\nLargest beside the backward pass: {largest.name}, {largest.seconds / found.seconds:.0%} of the step.",
        highlight=False,
    )


def _energy(found: Profile, carbon: float | None) -> str:
    if found.joules is None:
        return f"Energy: {found.energy_by}"
    wh = found.joules / found.tokens * 1e6 / 3600
    grams = emitted(wh / 1000, carbon)
    return f"{found.joules:,.3g} J a step, {wh:,.3g} Wh{grams} for 1,000,000 tokens, by {found.energy_by}"


def to_json(found: Profile, carbon: float | None) -> JsonObject:
    """Every figure, of one step; seconds, FLOPs, and shares from 0 to 1."""
    return {
        **vars(found),
        "components": [{**vars(one), "share": one.seconds / found.seconds} for one in found.components],
        "mfu": found.mfu,
        "largest": found.largest.name,
        "co2_grams": found.joules / 3.6e6 * carbon if found.joules and carbon else None,
    }
