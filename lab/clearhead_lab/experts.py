"""A mixture of experts in place of a feed-forward, which the engine does not have."""

from typing import cast

import torch
from torch import Tensor, nn

from clearhead.config import StackConfig
from clearhead.model import Transformer
from clearhead.model.feedforward import FeedForward
from clearhead.model.initialize import draw

RATE = 0.01
"""By how much the choice's bias changes in a step."""


class Experts(nn.Module):
    """y = p_e(x) FFN_e(x), e = argmax(p(x) + bias), p = softmax(x W)   (Fedus et al. 2021, one expert a position)

    The bias is not learned, and only the choice sees it: it falls for each expert with more than its share of the
    positions (Wang et al. 2024, balance without a loss of its own).
    """

    bias: Tensor

    def __init__(self, config: StackConfig, n: int) -> None:
        super().__init__()
        self.router = nn.Linear(config.d_model, n, bias=False)
        self.experts = nn.ModuleList(FeedForward(config) for _ in range(n))
        self.register_buffer("bias", torch.zeros(n))
        self.chosen: Tensor | None = None
        """The expert of each position of the last call, in order."""

    def forward(self, x: Tensor) -> Tensor:
        """b t d -> b t d; a position goes through its expert alone."""
        rows = x.flatten(0, -2)
        shares = self.router(rows).softmax(-1)
        chosen = self.chosen = (shares.detach() + self.bias).argmax(-1)
        out = torch.zeros_like(rows)
        for i, expert in enumerate(self.experts):
            its = (chosen == i).nonzero()[:, 0]
            out = out.index_add(0, its, expert(rows[its][None])[0])
        if self.training:
            load = chosen.bincount(minlength=len(self.experts)) / len(chosen)
            self.bias -= RATE * (load - load.mean()).sign()
        return (out * shares.gather(1, chosen[:, None])).view_as(x)


def with_experts(network: Transformer, n: int) -> Transformer:
    """Puts n experts in place of each feed-forward, in place, each as wide as that; returns the network."""
    config = network.last_stack.config
    for name, module in list(network.named_modules()):
        if isinstance(module, FeedForward):
            made = Experts(config, n)
            draw(made, network.config.init)
            network.set_submodule(name, made)
    return network


def mixtures(network: Transformer) -> list[Experts]:
    """The mixtures of a network, the first block's first."""
    return [cast("Experts", block.get_submodule("ffn")) for block in network.last_stack.blocks]
