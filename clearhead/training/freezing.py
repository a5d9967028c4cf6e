"""Which weights a run trains: all but the parts that are frozen."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from clearhead.errors import UserError
from clearhead.model import Transformer

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
