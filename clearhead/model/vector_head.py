"""The head that makes one vector of a text or a picture."""

import torch
from torch import Tensor, nn

from clearhead import config as c
from clearhead.model.attention import Attention
from clearhead.model.attention_bias import AttentionBias, BiasSteps
from clearhead.model.feedforward import FeedForward
from clearhead.model.layout import Layout
from clearhead.model.mode import Part
from clearhead.model.norm import build_norm
from clearhead.model.ops import KINDS, Kind, Mask, Steps
from clearhead.model.pool import Pool, pool
from clearhead.trace import tap


class VectorHead(Part):
    """vector = W norm(pool(states)), of these what the config has   (Radford et al. 2021; Zhai et al. 2022)"""

    def __init__(self, head: c.VectorHead, stack: c.StackConfig) -> None:
        super().__init__()
        attends = head.pool == "attention"
        self.how: Pool = "last" if head.pool == "last" else "first"
        self.stack = "encoder" if isinstance(stack.input, c.PatchInput) else "decoder"
        self.query = nn.Embedding(1, stack.d_model) if attends else None
        self.attn = Attention(stack) if attends else None
        self.ffn_norm = build_norm(stack) if attends else None
        self.ffn = FeedForward(stack) if attends else None
        self.norm = build_norm(stack, axes="b d") if head.norm else None
        self.output = nn.Linear(stack.d_model, head.width, bias=head.bias) if head.width else None

    def forward(self, states: Tensor, layout: Layout) -> Tensor:
        """b t d (or packed m d) -> b d, or b of the width of the linear layer."""
        x = self.pooled(layout.unpack(states), layout)
        x = x if self.norm is None else self.norm(x)
        return tap(self, "vector", x if self.output is None else self.output(x), "b d")

    def pooled(self, states: Tensor, layout: Layout) -> Tensor:
        """b t d -> b d"""
        if self.query is None or self.attn is None or self.ffn is None or self.ffn_norm is None:
            return pool(states, layout.valid, self.how)
        b = states.shape[0]
        alone = Layout((b, 1), torch.zeros(1, 1, dtype=torch.long, device=states.device))
        attn_bias = AttentionBias.between(alone, layout, dtype=states.dtype)
        x = self.attn(self.query.weight.expand(b, 1, -1), alone, attn_bias, memory=(states, layout))
        return (x + self.ffn(self.ffn_norm(x)))[:, 0]

    def steps(self, to: Steps, path: str, x: str) -> None:
        """List the ops of `forward`."""
        x = self.pool_steps(to, path, x)
        x = x if self.norm is None else self.norm.steps(to, f"{path}.norm", x)
        if self.output is None:
            to.do(f"{path}.vector", "copy", x)
            return
        with to.inside(f"{path}.output"):
            to.linear(f"{path}.vector", x, self.output, f"{path}.output")

    def pool_steps(self, to: Steps, path: str, x: str) -> str:
        """List the ops of `pooled`; returns the address of the result."""
        if self.query is None or self.attn is None or self.ffn is None or self.ffn_norm is None:
            return to.do(f"{path}.pool", "pool", x, how=self.how)
        to.masks[f"{path}.attn"] = Mask()
        with to.inside(f"{path}.query"):
            query = to.do(f"{path}.query", "learned", x, weights=(f"{path}.query.weight",))
        attn_bias = BiasSteps(f"{path}.attn", self.stack)
        read = self.attn.steps(to, f"{path}.attn", query, attn_bias, memory=x)
        fed = self.ffn.steps(to, f"{path}.ffn", self.ffn_norm.steps(to, f"{path}.ffn_norm", read))
        return to.do(f"{path}.pool", "pool", to.do(f"{path}.sum", "add", read, fed), how="first")


# A copy of the vector for each sequence, which it reads to have one.
KINDS["learned"] = Kind(lambda call: call.w[0], lambda call: call.w[0], width=lambda _: 0)
