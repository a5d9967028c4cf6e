"""From the samples of sounds of any length to vectors; the reference library compares the rest (tests/parity)."""

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from clearhead import config as c
from clearhead.model import Tokens, Transformer
from clearhead.model.summary import summarize
from tests.model import small
from tests.model.small import assert_close

SIZES = ((5, 3, 6), (3, 2, 7), (2, 1, 5))
"""Width, step and channels of each convolution."""
CONVOLUTIONS = tuple(c.Convolution(width=w, step=s, channels=d) for w, s, d in SIZES)
KINDS: dict[str, dict[str, Any]] = {
    "first": {"norm": True},
    "all": {"conv_norm": "all", "conv_bias": True, "position_width": 5, "activation": "relu", "feature_norm": False},
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def network_of(kind: str) -> Transformer:
    fields = {"convolutions": CONVOLUTIONS, "position_groups": 4, "position_width": 6, **KINDS[kind]}
    reads = c.WaveInput.model_validate(fields)
    place = "post" if reads.norm else "pre"
    head = c.TaggingHead(n_labels=5, blank=0)
    return small.with_head(head, input=reads, positions=c.NoPositions(), norm_place=place)


def sounds(*lengths: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(n, 1, generator=generator) for n in lengths]


@each_kind
@pytest.mark.parametrize("planted", [0.0, float("nan"), float("inf")])
def test_padding_changes_no_moment_and_no_gradient(kind: str, planted: float):
    network, waves = network_of(kind).double(), [wave.double() for wave in sounds(83, 40, 57)]
    alone = [network(Tokens(wave[None]))[0] for wave in waves]
    torch.cat(alone).square().sum().backward()
    gradients = {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}
    network.zero_grad()
    batch = Tokens.waves(waves)
    assert batch.valid is not None
    batch.ids[~batch.valid] = planted
    logits = network(batch)
    for one, found in zip(alone, logits, strict=True):
        assert_close(found[: len(one)], one)
    torch.cat([found[: len(one)] for one, found in zip(alone, logits, strict=True)]).square().sum().backward()
    assert len(gradients) == len(list(network.parameters()))
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-9, atol=1e-9)


@each_kind
def test_costs_are_what_is_computed(kind: str):
    network, length = network_of(kind).train(), 9
    assert isinstance(network.config.first.input, c.WaveInput)
    wave = torch.randn(2, *network.config.first.input.shape_of(length))
    found = summarize(network.config, batch=2, source_length=length)
    with FlopCounterMode(display=False) as counter:
        logits = network(wave)
    assert logits.shape[1] == length
    attention = 2 * 2 * 2 * 2 * length * length * 16  # Two layers' scores and sums, which short texts make explicitly.
    assert counter.get_total_flops() in (found.flops, found.flops - attention)
    kept = small.kept_bytes(network, [wave])
    assert 0.9 * kept <= found.activation_bytes <= 1.1 * kept
