"""Tensors of experts: one for each expert, or one for all."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from clearhead.checkpoints.weights.mapping import Rule, rename
from clearhead.config import ModelConfig
from clearhead.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

OURS = "decoder.blocks.{{i}}.ffn.experts.{e}.{part}.{kind}"


def expert_rules(config: ModelConfig, *, at: str, maps: Mapping[str, str]) -> list[Rule]:
    """Each expert's matrices, as checkpoints have them, or all of them in the two that the reference library computes
    with: gate and up one below the other, and down.
    """
    n = number(config)
    return [
        *(
            rename(f"{at}.{{e}}.{a}.{{p}}", f"decoder.blocks.{{i}}.ffn.experts.{{e}}.{b}.{{p}}")
            for a, b in maps.items()
        ),
        stacked(f"{at}.gate_up_proj", n, "gate", "up"),
        stacked(f"{at}.down_proj", n, "down"),
    ]


def number(config: ModelConfig) -> int:
    """The number of experts."""
    assert config.decoder is not None
    return config.decoder.experts.n if config.decoder.experts is not None else 0


def stacked(theirs: str, n: int, *parts: str, kind: str = "weight") -> Rule:
    """Theirs is e (parts f) d, or e (parts f): the parts of an expert one below the other."""

    def load(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        whole = checked(tensors[0], n)
        if whole.shape[1] % len(parts):
            raise UserError(f"expected {len(parts)} equal parts, got shape {list(whole.shape)}")
        return [part for expert in whole for part in expert.chunk(len(parts))]

    def save(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        import torch

        return [torch.stack([torch.cat(own) for own in of_each(tensors, len(parts))])]

    return Rule((theirs,), places(n, parts, kind), load, save)


def checked(tensor: "Tensor", n: int) -> "Tensor":
    """Returns the tensor. Raises UserError unless its first axis counts the experts."""
    if tensor.ndim < 2 or len(tensor) != n:
        raise UserError(f"expected {n} experts, got shape {list(tensor.shape)}")
    return tensor


def places(n: int, parts: Sequence[str], kind: str) -> tuple[str, ...]:
    """Our names of these parts of the experts, expert after expert."""
    return tuple(OURS.format(e=e, part=part, kind=kind) for e in range(n) for part in parts)


def of_each(tensors: "Sequence[Tensor]", n_parts: int) -> "list[tuple[Tensor, ...]]":
    """The tensors of each expert."""
    return [tuple(tensors[i : i + n_parts]) for i in range(0, len(tensors), n_parts)]
