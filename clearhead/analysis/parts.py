"""The parts of a network that can be switched off: heads and neurons, as columns of an output projection's input."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.trace import Address


@dataclass(frozen=True)
class Part:
    """Columns of an output projection's input: those of a head or a neuron."""

    site: str
    stack: str
    block: int
    projection: str
    columns: slice
    index: int
    is_head: bool

    def place(self) -> tuple[str, int, str]:
        return self.stack, self.block, self.projection


def part_at(network: Transformer, site: str) -> Part:
    """The part at an address. Raises UserError for an address of anything else."""
    address = Address.parse(site)
    match = re.fullmatch(r"(encoder|decoder)\.blocks\.(\d+)\.(?:(attn|cross)\.z|ffn\.post)", address.path)
    index = dict(address.index)
    stack = network.stacks().get(match[1]) if match else None
    axis = "h" if match and match[3] else "f"
    if match is None or stack is None or set(index) != {axis}:
        raise UserError(f"{site}: expected a head or neuron, such as decoder.blocks.0.attn.z[h=2] or ….ffn.post[f=7]")
    config, block, i = stack.config, int(match[2]), index[axis]
    if axis == "f" and config.has_experts(block):
        raise UserError(f"{site}: expected a neuron of one feed-forward part, got a block with experts; try a head")
    count, width = (config.n_heads, config.head_width) if axis == "h" else (config.d_ff, 1)
    has_cross = network.encoder is not None and match[1] == "decoder"
    if block >= config.n_layers or not -count <= i < count or (match[3] == "cross" and not has_cross):
        raise UserError(f"{site}: no such part; {match[1]} has {config.n_layers} blocks, {axis} is below {count}")
    projection = address.path.replace(".z", ".out").replace(".post", ".down")
    start = i % count * width
    return Part(site, match[1], block, projection, slice(start, start + width), i % count, axis == "h")


def switched_off(value: Tensor, parts: Sequence[Part]) -> Tensor:
    """Sets heads, b h t k, or neurons, b t f, to 0, each in its own copy of the batch."""
    value = value.clone()
    for rows, part in zip(value.chunk(len(parts)), parts, strict=True):
        rows.select(1 if part.is_head else 2, part.index).zero_()
    return value
