"""Which weights a run trains: parts that are frozen, and parts that begin to learn one after the other."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.recipe.training import Training

BLOCKS = re.compile(r"(encoder|decoder)\.(\d+)(?:\.\.(\d+))?")
"""`encoder.3`, or `encoder.0..3`."""


def freeze(network: Transformer, parts: Sequence[str]) -> None:
    """Keeps these parts from learning. Raises UserError for a part that the network does not have.

    A part is `embedding`, `encoder`, `decoder`, `head`, some blocks as `encoder.0..3`, or a pattern of addresses.
    """
    named = dict(network.named_parameters())
    for part in parts:
        patterns = _patterns(part, network)
        found = [p for name, p in named.items() if any(fnmatchcase(name, pattern) for pattern in patterns)]
        if not found:
            known = ["embedding", "head", *(f"{n}.0..{len(s.blocks) - 1}" for n, s in network.stacks().items())]
            raise UserError(
                f"training.freeze: expected {', '.join(known)}, or a pattern of addresses, got {part!r}; correct it"
            )
        for parameter in found:
            parameter.requires_grad_(False)


def _patterns(part: str, network: Transformer) -> list[str]:
    if part == "embedding":
        return [f"{stack}.{table}.*" for stack in network.stacks() for table in ("embed", "positions")]
    if (match := BLOCKS.fullmatch(part)) is not None:
        first, last = int(match[2]), int(match[3] or match[2])
        there = len(getattr(network, match[1]).blocks) if match[1] in network.stacks() else 0
        return [f"{match[1]}.blocks.{i}.*" for i in range(first, last + 1)] if last < there else []
    return [part, f"{part}.*"]


class GradualUnfreezing:
    """Trains the head first, then one part more after the other, from the last block to the embeddings.

    (Howard and Ruder 2018, "Universal language model fine-tuning", 3.3.) How many parts learn is a function of the
    position of the run, so that a resumed run goes on as it was.
    """

    def __init__(self, network: Transformer, config: Training) -> None:
        self.config = config
        places = _places(network)
        trained = {name: p for name, p in network.named_parameters() if p.requires_grad}
        parts: dict[int, list[nn.Parameter]] = {}
        for name, parameter in trained.items():
            fits = (at for prefix, at in places.items() if name.startswith(prefix))
            parts.setdefault(next(fits, len(places)), []).append(parameter)
        self.parts = [parts[at] for at in sorted(parts)]
        self.n_open = -1

    def apply(self, step: int, epoch: int) -> None:
        """Lets those parts learn that do so in the update after `step`."""
        if self.config.unfreeze_every is None and not self.config.unfreeze_at:
            return
        n = 1 + sum(step >= start for start in self.config.unfreeze_at)
        n += epoch // self.config.unfreeze_every if self.config.unfreeze_every is not None else 0
        if n != self.n_open:
            self.n_open = n
            for i, parameters in enumerate(self.parts):
                for parameter in parameters:
                    parameter.requires_grad_(i < n)


def _places(network: Transformer) -> dict[str, int]:
    """The order in which parts begin to learn, by the beginning of their parameters' names; the rest comes last."""
    places = {"head.": 0}
    for name, stack in reversed(network.stacks().items()):
        first, blocks = max(places.values()) + 1, reversed(range(len(stack.blocks)))
        places[f"{name}.final_norm."] = first
        places |= {f"{name}.blocks.{i}.": first + n for n, i in enumerate(blocks)}
    return places
