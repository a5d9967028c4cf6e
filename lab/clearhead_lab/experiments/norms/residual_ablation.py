"""What residual connections and norms each prevent: tokens that become equal, and sizes that explode."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Layout, Tokens, Transformer
from clearhead.model.attention_bias import AttentionBias
from clearhead.model.block import Block
from clearhead_lab.experiment import Row
from clearhead_lab.learning import stack

TOKENS = 24
KINDS = (
    (True, True, True),
    (False, True, True),
    (True, False, True),
    (False, False, True),
    (False, False, False),
)
"""The parts of each network: residual connections, norms, feed-forwards."""


def network(depth: int, n_heads: int = 4) -> Transformer:
    """An encoder with matrices that keep the size of what they read."""
    config = stack(64, 64, n_layers=depth, n_heads=n_heads)
    init = c.Init(matrices="xavier", depth_scaled=False)
    return Transformer(c.ModelConfig(encoder=config, head=c.NoHead(), init=init))


def through(blocks: Transformer, x: Tensor, *, residual: bool, norm: bool, ffn: bool = True) -> Iterator[Tensor]:
    """The state after each block, with or without its residual connections, norms and feed-forwards."""
    layout = Layout.of(Tokens(torch.zeros(1, TOKENS, dtype=torch.long)))
    attn_bias = AttentionBias.between(layout, layout)
    for block in blocks.last_stack.blocks:
        assert isinstance(block, Block)
        assert block.attn is not None
        assert block.ffn is not None
        out: Tensor = block.attn(block.attn_norm(x) if norm and block.attn_norm else x, layout, attn_bias)
        x = x + out if residual else out
        if ffn:
            out = block.ffn(block.ffn_norm(x) if norm and block.ffn_norm else x)
            x = x + out if residual else out
        yield x


def likeness(x: Tensor) -> float:
    """The mean cosine between different tokens of a text."""
    unit, n = torch.nn.functional.normalize(x, dim=-1), x.shape[1]
    return ((unit @ unit.mT).sum((1, 2)).mean() - n).item() / (n * (n - 1))


def differences(x: Tensor) -> float:
    """The share of the vectors of a text that is not their mean."""
    return ((x - x.mean(1, keepdim=True)).norm() / x.norm()).item()


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Likeness of the tokens, size of the states and of the gradient at the input, by depth."""
    depths = (1, 2, 4, 8, 12) if quick else (1, 2, 4, 8, 12, 24, 48)
    blocks = network(max(depths))
    for residual, norm, ffn in KINDS:
        x = torch.randn(1, TOKENS, 64).requires_grad_()
        kind = " and ".join(["residual"] * residual + ["norm"] * norm) or "neither"
        kind = kind if ffn else "attention alone"
        for depth, out in enumerate(through(blocks, x, residual=residual, norm=norm, ffn=ffn), start=1):
            if depth not in depths:
                continue
            (gradient,) = torch.autograd.grad((out * torch.randn_like(out)).sum(), x, retain_graph=True)
            yield Row(
                {"parts": kind, "depth": depth},
                {
                    "likeness": likeness(out),
                    "share of differences": differences(out),
                    "size": out.square().mean().sqrt().item(),
                    "gradient": gradient.norm().item(),
                },
            )
