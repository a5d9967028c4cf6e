"""Two encodings at once: one added to the embedding, the other to the scores."""

import pytest
import torch

from clearhead import config as c
from clearhead.config.positions import Together
from clearhead.errors import UserError
from clearhead.model.positions import TogetherEncoding
from clearhead.trace import trace
from tests.model import small
from tests.model.mechanism import properties_of
from tests.model.small import assert_close, ids

MPNET = Together(added=c.Learned(max_length=24, offset=2), scored=c.RelativeBias(n_buckets=8, max_distance=16))

test_properties = properties_of({"positions": MPNET}, {"positions": Together(added=c.Sinusoidal(), scored=c.ALiBi())})


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_it_is_the_sum_of_two_encodings(kind: str) -> None:
    network = getattr(small, kind)(positions=MPNET)
    positions, numbers = network.last_stack.positions, torch.arange(7)[None]
    assert isinstance(positions, TogetherEncoding)
    with trace(network) as seen:
        network(ids(2, 7))
    at, table = f"{kind}.blocks.1.attn", network.get_parameter(f"{kind}.positions.added.table.weight")
    assert_close(seen[f"{kind}.embed.sum"], seen[f"{kind}.embed.tokens"] + table[2:9])
    product = seen[f"{at}.q"] @ seen[f"{at}.k"].mT * network.last_stack.config.score_scale
    bias = positions.scored.score_bias(numbers, numbers)
    assert bias is not None
    assert_close(seen[f"{at}.scores"], product + bias)


def test_it_refuses_what_one_of_the_two_refuses() -> None:
    with pytest.raises(UserError, match=r"length 25.*end at 24"):
        small.decoder(positions=MPNET)(ids(1, 25))
    with pytest.raises(ValueError, match="d_model=15 must be even"):
        small.stack(positions=Together(added=c.Sinusoidal(), scored=c.ALiBi()), d_model=15, n_heads=1)
