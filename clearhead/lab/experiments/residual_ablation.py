"""What residual connections and norms each prevent: tokens that become equal, and sizes that explode."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.lab.experiment import Check, Experiment, Plot, Row
from clearhead.lab.learning import stack
from clearhead.model import Layout, Tokens, Transformer
from clearhead.model.attention_bias import AttentionBias
from clearhead.model.block import Block

TOKENS = 24
KINDS = (
    (True, True, True),
    (False, True, True),
    (True, False, True),
    (False, False, True),
    (False, False, False),
)
"""Whether there are residual connections, norms and feed-forwards."""


def network(depth: int) -> Transformer:
    """An encoder with matrices that keep the size of what they read."""
    config = stack(64, 64, n_layers=depth)
    init = c.Init(matrices="xavier", depth_scaled=False)
    return Transformer(c.ModelConfig(encoder=config, head=c.NoHead(), init=init))


def through(blocks: Transformer, x: Tensor, *, residual: bool, norm: bool, ffn: bool = True) -> Iterator[Tensor]:
    """The state after each block, with or without its residual connections, norms and feed-forwards."""
    layout = Layout.of(Tokens(torch.zeros(1, TOKENS, dtype=torch.long)))
    attn_bias = AttentionBias.between(layout, layout)
    for block in blocks.last_stack.blocks:
        assert isinstance(block, Block)
        out: Tensor = block.attn(block.attn_norm(x) if norm and block.attn_norm else x, layout, attn_bias)
        x = x + out if residual else out
        if ffn:
            out = block.ffn(block.ffn_norm(x) if norm and block.ffn_norm else x)
            x = x + out if residual else out
        yield x


def likeness(x: Tensor) -> float:
    """The mean cosine between different tokens."""
    unit = torch.nn.functional.normalize(x[0], dim=-1)
    return ((unit @ unit.mT).sum() - TOKENS).item() / (TOKENS * (TOKENS - 1))


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
            centred = (out - out.mean(1, keepdim=True)).norm() / out.norm()
            yield Row(
                {"parts": kind, "depth": depth},
                {
                    "likeness": likeness(out),
                    "share of differences": centred.item(),
                    "size": out.square().mean().sqrt().item(),
                    "gradient": gradient.norm().item(),
                },
            )


EXPERIMENT = Experiment(
    name="residual-ablation",
    claim="Without residual connections tokens become alike and gradients vanish; without norms sizes explode.",
    source="documents 000 (19.1), 001, 003 (08); Dong et al. 2021; He et al. 2015",
    measure=measure,
    checks=(
        Check(
            "attention alone, 4 deep: share of differences",
            lambda f: f.at("share of differences", parts="attention alone", depth=4),
            at_most=0.05,
            otherwise="Four blocks of attention alone keep the differences between tokens.",
        ),
        Check(
            "norm without residual, 12 deep: likeness",
            lambda f: f.at("likeness", parts="norm", depth=12),
            at_least=0.9,
            otherwise="Without residual connections tokens stay different.",
        ),
        Check(
            "residual and norm, 12 deep: share of differences",
            lambda f: f.at("share of differences", parts="residual and norm", depth=12),
            at_least=0.1,
            otherwise="Tokens become alike with residual connections too.",
        ),
        Check(
            "residual and norm, 12 deep: likeness",
            lambda f: f.at("likeness", parts="residual and norm", depth=12),
            at_most=0.5,
            role="limit",
            otherwise="Residual connections slow it down, they do not prevent it: in 12 new blocks the tokens"
            " come to point in a similar direction.",
        ),
        Check(
            "neither, 12 deep over 1 deep: gradient",
            lambda f: f.at("gradient", parts="neither", depth=12) / f.at("gradient", parts="neither", depth=1),
            at_most=1e-3,
            otherwise="The gradient does not vanish without residual connections and norms.",
        ),
        Check(
            "residual without norm, 12 deep over residual and norm: size",
            lambda f: f.at("size", parts="residual", depth=12) / f.at("size", parts="residual and norm", depth=12),
            at_least=10.0,
            role="limit",
            otherwise="Without norms the states do not explode.",
        ),
        Check(
            "norm without residual, 12 deep over 1 deep: gradient vanishes",
            lambda f: f.at("gradient", parts="norm", depth=12) / f.at("gradient", parts="norm", depth=1),
            at_most=1e-3,
            role="limit",
            otherwise="Norms keep the gradient alive where residual connections are missing: it vanishes without both.",
        ),
    ),
    plot=Plot(x="depth", y="likeness", by="parts", log_x=True),
)
