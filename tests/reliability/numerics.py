"""Positions in numbers of few bits."""

from pathlib import Path

import torch

from clearhead import config as c
from clearhead.model.attention_bias import PositionEncoding
from tests.reliability import Counted


def positions(folder: Path) -> Counted:
    """Positions 0 to 8,191 of sinusoidal, rotary and ALiBi encodings in a network of 16 bits, and in float64."""
    del folder
    where, unit = torch.arange(8192)[None], torch.ones(1, 1, 1, 64)
    angles = where[0, :, None].double() / 10_000.0 ** (torch.arange(32, dtype=torch.float64) / 32)
    wanted = torch.stack((angles.cos() - angles.sin(), angles.sin() + angles.cos()), 1).flatten(1)
    broken, worst = 0, 0.0
    stack = c.StackConfig(input=c.TokenInput(vocab_size=2), d_model=64, n_layers=1, n_heads=8, d_head=64, d_ff=1)

    def encoding(config: c.Encoding, dtype: torch.dtype) -> PositionEncoding:
        return config.build(stack, causal=True).to(dtype)

    for kind in (torch.float32, torch.bfloat16, torch.float16):
        rotation = encoding(c.Rotary(), kind).rotation(where)
        assert rotation is not None
        turned = rotation(unit.expand(1, 1, 8192, 64))[0, 0]
        worst = max(worst, (turned.double() - wanted).abs().max().item())
        added = [encoding(c.Sinusoidal(), k).embedding(where) for k in (torch.float32, kind)]
        scored = [encoding(c.ALiBi(), k).score_bias(where[:, -1:], where) for k in (torch.float32, kind)]
        broken += not torch.equal(*(x.float() for x in added if x is not None))
        broken += not torch.equal(*(x.float() for x in scored if x is not None))
    said = "For each of the first 8,192 positions, models in float32, bfloat16 and float16 have equal sinusoidal and"
    said += f" ALiBi encodings, and their rotary encodings differ from those in float64 by at most {worst:.1g}"
    return Counted(3 * 8192, broken + (worst > 2e-3), said)
