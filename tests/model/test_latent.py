"""Keys and values that are made of one short vector for each position."""

from typing import Any

import pytest
import torch

from clearhead import config as c
from clearhead.trace import trace
from tests.model import small
from tests.model.mechanism import properties_of
from tests.model.small import assert_close, ids

NARROW = {"d_head": 8, "latent": c.Latent(rank=5, d_shared=2, d_value=3, query_rank=4, bias=True)}
WIDE = {
    "d_head": 6,
    "positions": c.Rotary(fraction=0.67),
    "latent": c.Latent(rank=5, d_shared=4, d_value=8, norm_eps=1e-3),
}

test_properties = properties_of(NARROW, WIDE)


@pytest.mark.parametrize("changes", [NARROW, WIDE])
@torch.no_grad()
def test_all_heads_share_a_part_of_their_keys(changes: dict[str, Any]) -> None:
    network, at = small.decoder(**changes), "decoder.blocks.0.attn"
    with trace(network) as seen:
        network(ids(2, 5))
    latent, k = changes["latent"], seen[f"{at}.k"]
    shared, own = k[..., : latent.d_shared], k[..., latent.d_shared :]
    assert_close(shared, shared[:, :1].expand_as(shared))
    made = seen[f"{at}.latent.k_norm.out"]
    assert made.shape == (2, 5, latent.rank)
    assert_close(own.transpose(1, 2).flatten(2), network.get_submodule(f"{at}.k")(made))
    assert seen[f"{at}.z"].shape[-1] == latent.d_value
