"""Directions of a model's values from two sets of texts, and their files."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import safetensors
from safetensors.torch import save_file

from clearhead.analysis.features.training import Inputs
from clearhead.analysis.steering import Direction, difference_of_means
from clearhead.api.model import Model
from clearhead.checkpoints.weights.safetensors import with_metadata
from clearhead.errors import UserError, reason
from clearhead.model import Tokens
from clearhead.trace import Address

FORMAT = "clearhead-direction/1"
TENSOR = "direction"
AT_ONCE = 16
"""Texts of a batch."""
Text: TypeAlias = str | tuple[str, str]
"""A text, or a source with its target."""


def direction(model: Model, positive: Sequence[Text], negative: Sequence[Text], *, at: str) -> Direction:
    """The difference of the means of two sets of texts at an address, as `difference_of_means` takes it.

    An encoder-decoder reads pairs of a source and a target. Raises UserError for a set without texts, and for an
    address that has no vector for each position.
    """
    for name, texts in (("positive", positive), ("negative", negative)):
        if isinstance(texts, str):
            raise UserError(f"{name}: expected a list of texts, got one text; put it into a list")
    sets = [batches_of(model, texts) for texts in (positive, negative)]
    return difference_of_means(model.network, *sets, at=at)


def pair(line: str) -> tuple[str, str]:
    """A source and its target, which stand in a line with a tab between them; without a tab, no target."""
    source, _, target = line.partition("\t")
    return source, target


def batches_of(model: Model, texts: Sequence[Text]) -> Inputs:
    """Batches of texts as the network reads them, of AT_ONCE texts each."""
    return [
        [model.here(tokens) for tokens in _together(model, texts[at : at + AT_ONCE])]
        for at in range(0, len(texts), AT_ONCE)
    ]


def _together(model: Model, texts: Sequence[Text]) -> list[Tokens]:
    pairs = [(text, None) if isinstance(text, str) else text for text in texts]
    others = [other for _, other in pairs if other is not None]
    return model.reader.batch_of([text for text, _ in pairs], others or None, model.generation)


def save_direction(direction: Direction, path: str | Path) -> Path:
    """Writes a safetensors file with the vector and its address. Raises UserError if it exists or cannot be written."""
    path = Path(path)
    if path.exists():
        raise UserError(f"{path}: expected no file there, got one; try another name")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file({TENSOR: direction.vector.contiguous()}, path, metadata={"format": FORMAT, "at": direction.at})
    except (OSError, safetensors.SafetensorError) as error:
        raise UserError(f"{path}: expected to write it, got {reason(error)}; try another folder") from None
    return path


def load_direction(path: str | Path) -> Direction:
    """The direction in a file of `save_direction`. Raises UserError for any other file."""
    path = Path(path)
    tensors, about = with_metadata(path)
    if about.get("format") != FORMAT or "at" not in about or TENSOR not in tensors or tensors[TENSOR].ndim != 1:
        raise UserError(f"{path}: expected a direction of clearhead steer make, got another file")
    return Direction(str(Address.parse(about["at"])), tensors[TENSOR])
