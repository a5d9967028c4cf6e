"""A learned score of each head that takes a share of every row of weights."""

import torch

from clearhead.trace import trace
from tests.model import small
from tests.model.mechanism import properties_of
from tests.model.small import assert_close, ids

test_properties = properties_of({"sinks": True})


def test_a_sink_takes_its_share() -> None:
    network, at = small.decoder(sinks=True), "decoder.blocks.0.attn"
    with trace(network) as seen:
        network(ids(2, 5))
    sinks = network.get_parameter(f"{at}.sinks")[:, None, None]
    scores = seen[f"{at}.masked"].exp()
    assert_close(seen[f"{at}.weights"], scores / (scores.sum(-1, keepdim=True) + sinks.exp()))
    assert not torch.equal(sinks, torch.zeros_like(sinks))
