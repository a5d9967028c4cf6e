"""FFN(x) = act(x W_1 + b_1) W_2 + b_2, and its gated form."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.config import StackConfig
from clearhead.model.dropout import dropout
from clearhead.trace import tap


def gelu_tanh(x: Tensor) -> Tensor:
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))   (Hendrycks and Gimpel 2016)"""
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "silu": F.silu,
}


class FeedForward(nn.Module):
    """down(act(up(x)));  gated: down(act(gate(x)) * up(x))   (Vaswani et al. 2017, 3.3; Shazeer 2020)"""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.act, self.dropout = ACTIVATIONS[config.activation], config.ffn_dropout
        self.gate = nn.Linear(config.d_model, config.d_ff, bias=config.has_ffn_bias) if config.gated else None
        self.up = nn.Linear(config.d_model, config.d_ff, bias=config.has_ffn_bias)
        self.down = nn.Linear(config.d_ff, config.d_model, bias=config.has_ffn_bias)

    def forward(self, x: Tensor) -> Tensor:
        """b t d -> b t d, each position on its own."""
        if self.gate is None:
            pre = tap(self, "pre", self.up(x), "b t f")
            post = self.act(pre)
        else:
            pre = tap(self, "pre", self.gate(x), "b t f")
            post = self.act(pre) * self.up(x)
        post = tap(self, "post", post, "b t f")
        return tap(self, "out", self.down(dropout(post, self.dropout, self.training)), "b t d")
