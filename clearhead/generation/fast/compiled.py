"""Generates a single text with one compiled graph for each step, if launching operations takes most of the time."""

from collections.abc import Callable

import torch
from torch import Tensor

from clearhead.errors import compiling
from clearhead.model import Tokens, Transformer
from clearhead.model.block import Memory
from clearhead.model.cache import Cache, FixedCache

BACKEND = "inductor"
LEAST_ROOM = 256
"""Cells for the shortest texts. Their number doubles, so that few graphs serve all lengths."""


class Compiled:
    """The decoder's steps after a prefilled cache, for one text in a fixed number of cells."""

    def __init__(self, network: Transformer, past: Cache, *, length: int) -> None:
        """`length` is the number of cells needed in the end."""
        assert network.decoder is not None
        room, limit = max(LEAST_ROOM, 1 << (length - 1).bit_length()), network.decoder.config.max_length
        self.cache = FixedCache.of(past, room if limit is None else min(room, limit))
        # CUDA graphs are launched whole. A CPU has nothing to launch.
        mode = "reduce-overhead" if self.cache.at.device.type == "cuda" else None
        # PyTorch keeps compiled graphs, so the next text of this network reuses them.
        self.step: Callable[[Tokens, Memory | None, Cache], Tensor] = torch.compile(
            network.decode, dynamic=False, mode=mode, backend=BACKEND
        )
        for cells in (self.cache.at, *(t for b in self.cache.blocks for t in (b.attn.k, b.attn.v))):
            # A CUDA graph needs tensors that stay in their place.
            torch._dynamo.mark_static_address(cells)

    def __call__(self, tokens: Tokens, memory: Memory | None) -> Tensor:
        """1 1 -> 1 1 v: logits after one more token. Raises UserError if PyTorch cannot compile."""
        with compiling("compile"):
            return self.step(tokens, memory, self.cache)
