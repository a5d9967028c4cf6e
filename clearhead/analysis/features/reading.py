"""What a feature stands for: the words that it makes likelier, and the texts that activate it most."""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.analysis.features.buffer import Inputs
from clearhead.analysis.features.dictionary import Features
from clearhead.analysis.values import rows_at, sizes_of
from clearhead.brief import brief
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.model.heads import ClassificationHead, LanguageHead, TaggingHead
from clearhead.model.linear import effective_weight


@dataclass(frozen=True)
class Example:
    """A position of a text that activates a feature."""

    __repr__ = brief

    batch: int
    """The number of the batch."""
    row: int
    """The row of the batch."""
    position: int
    """Among the real positions of the row."""
    activation: float


def top_examples(
    network: Transformer, inputs: Inputs, features: Features, feature: int, *, k: int = 8
) -> list[Example]:
    """The k rows of the texts that activate a feature most, each with its strongest position, strongest first.

    Raises UserError for a feature that does not exist.
    """
    if not 0 <= feature < features.n:
        raise UserError(f"feature {feature}: expected a number below {features.n}")
    found: list[Example] = []
    stack = list(network.stacks()).index(features.reads.split(".")[0])
    for number, batch in enumerate(inputs):
        active = features.encode(rows_at(network, batch, {features.reads})[features.reads])[:, feature]
        for row, own in enumerate(active.split(sizes_of(batch[stack], len(active)))):
            found.append(Example(number, row, int(own.argmax()), float(own.max())))
    return sorted(found, key=lambda one: -one.activation)[:k]


def effect_on_logits(network: Transformer, features: Features, feature: int) -> Tensor:
    """v: what a unit of a feature adds to each logit by the direct way, up to the scale of the final norm.

    head.W (gain * (w - mean(w))), w the feature's row of W_dec, as `attribute` splits a logit (Elhage et al. 2021).
    Raises UserError if the features do not write to the stream of the last stack, or if the way is not linear.
    """
    head, stack = network.head, network.last_stack
    if not features.writes.startswith(f"{list(network.stacks())[-1]}."):
        raise UserError(f"{features.writes}: expected features of the last stack, whose states the head reads")
    if not isinstance(head, LanguageHead | TaggingHead | ClassificationHead) or head.dense is not None:
        raise UserError("features: expected a linear head, whose logits their directions change, got another")
    direction = features.w_dec[feature].to(effective_weight(head.output))
    if len(direction) != stack.config.d_model:
        raise UserError(f"{features.writes}: expected features of the residual stream, got another width")
    norm = stack.final_norm
    with torch.no_grad():
        return effective_weight(head.output) @ (direction if norm is None else norm.centred(direction) * norm.gain)


def strongest(active: Tensor, *, k: int = 10) -> list[tuple[int, float]]:
    """f: the numbers of the k most active features with their activations, strongest first, without those at 0."""
    values, at = active.topk(min(k, len(active)))
    return [(i, value) for i, value in zip(at.tolist(), values.tolist(), strict=True) if value > 0]
