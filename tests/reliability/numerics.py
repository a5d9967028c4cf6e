"""Numbers that are not finite, and batches that count for nothing."""

import math
import random
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from clearhead import config as c
from clearhead.errors import NumericError
from clearhead.model.attention_bias import PositionEncoding
from clearhead.model.loss import IGNORED, cross_entropy, linear_cross_entropy
from clearhead.training.events import Event, Skipped, Stepped
from clearhead.training.train import train
from tests.reliability import Counted
from tests.training.tiny import Around, new_run, state, translation


def not_finite(folder: Path) -> Counted:
    """NaN and infinity in the loss, in one gradient and in a weight's gradient, at 20 updates each."""
    del folder
    chance, broken, tried = random.Random(17), 0, 0
    for bad in (math.nan, math.inf):
        for _ in range(10):
            at = chance.randrange(1, 11)
            task = Around(translation(), loss=lambda total, n, at=at, bad=bad: total * (bad if n == at else 1.0))
            run, before, seen = new_run(task, on_nan="skip"), "", list[Event]()
            for event in train(run):
                now = state(run)["weights"]
                broken += isinstance(event, Skipped) and now != before
                before = now
                seen.append(event)
            skipped = [event.step for event in seen if isinstance(event, Skipped)]
            finite = [math.isfinite(event.loss) for event in seen if isinstance(event, Stepped)]
            broken += skipped != [at] or len(finite) != 11 or not all(finite)
            tried += 1
    endless = new_run(Around(translation(), loss=lambda total, _: total * math.nan), steps=30, on_nan="skip")
    with pytest.raises(NumericError) as caught:
        list(train(endless))
    broken += caught.value.exit_code != 4 or endless.progress.step != 10
    said = f"{tried} updates of NaN or infinity: weights as they were, named in the log, the next update made; ten in a"
    return Counted(tried + 1, broken, said + " row ended the run with code 4")


def nothing_to_learn(folder: Path) -> Counted:
    """100 batches all of whose labels are ignored."""
    del folder
    broken = 0
    for seed in range(100):
        draw = torch.Generator().manual_seed(seed)
        states, weight = (torch.randn(n, 8, generator=draw, requires_grad=True) for n in (6, 11))
        labels = torch.full((6,), IGNORED)
        for total in (
            linear_cross_entropy(states, weight, None, labels),
            cross_entropy(F.linear(states, weight), labels),
        ):
            gradients = torch.autograd.grad(total, (states, weight))
            broken += total.item() != 0.0 or any(bool(gradient.any()) for gradient in gradients)
    return Counted(100, broken, "100 batches without labels: loss 0, gradients 0")


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
    said = f"8,192 positions in float32, bfloat16 and float16: the same numbers, within {worst:.1g} of float64"
    return Counted(3 * 8192, broken + (worst > 2e-3), said)
