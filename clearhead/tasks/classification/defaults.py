"""Settings of a classifier that depend on its table, and the lines that report them. Imports no torch."""

from collections.abc import Iterator
from typing import TypeVar

from clearhead.config import Config
from clearhead.recipe import Recipe, leaves_length

R = TypeVar("R", bound=Recipe)

MOST_EPOCHS, MOST_TOKENS = 8, 2_200_000
"""Passes over the training texts, and the tokens that they read, which take one CPU thread less than two minutes."""
BLEND = 0.75
"""The share of the trained weights in a classifier of single labels that begins as a linear model."""
MOST_LABELS = 96
"""The labels for which a network of the usual width has room; one for more is twice as wide."""


def settle(recipe: R, *, n_tokens: int, n_labels: int) -> R:
    """The recipe with its size and its length, where it leaves them to a table of so many tokens and labels.

    A limit in minutes that is given is the only one below MOST_EPOCHS.
    """
    model, training = recipe.model, recipe.training
    if not leaves_length(recipe):
        return recipe
    times, is_new = 2 if n_labels > MOST_LABELS else 1, model.start is None
    epochs = float(MOST_EPOCHS)
    if training.minutes is None:
        epochs = round(max(0.1 if is_new else 1.0, min(epochs, MOST_TOKENS / times / max(n_tokens, 1))), 1)
    changes: dict[str, Config] = {"training": training.model_copy(update={"epochs": epochs})}
    if is_new and model.preset == "text-classifier":
        changes["model"] = model.model_copy(update={"stacks": {"d_model": 128 * times, **model.stacks}})
    return recipe.model_copy(update=changes)


def lines_of(recipe: Recipe) -> Iterator[str]:
    """What a run trains with, a line each, with the option that changes it."""
    model, training, tokenizer = recipe.model, recipe.training, recipe.tokenizer
    if model.start is None:
        size = "".join(f", {name} {value}" for name, value in model.stacks.items())
        yield f"network: {model.preset}{size}; another: --model.stacks.d_model N"
        yield f"tokenizer: {tokenizer.kind}, at most {tokenizer.vocab_size:,} tokens; another: --tokenizer.vocab_size N"
    if training.epochs is not None:
        yield f"epochs: {training.epochs}; another: --epochs N"
    yield f"learning rate: {training.optimizer.lr}; another: --training.optimizer.lr X"
    yield f"patience: {training.patience}; another: --patience N"
