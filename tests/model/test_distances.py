"""Disentangled attention: scores of states with vectors of distances."""

import pytest
import torch

from clearhead import config as c
from clearhead.config.positions import Disentangled, Together
from clearhead.model.distances import DisentangledEncoding, distance_rows
from clearhead.trace import trace
from tests.model import small
from tests.model.mechanism import properties_of
from tests.model.small import assert_close, ids

V3 = Disentangled(max_distance=16, n_buckets=4, shared=True, norm=True)
BESIDE = Together(added=c.Learned(max_length=24), scored=Disentangled(max_distance=3, position_to_content=False))

EACH = c.RelativeBias(n_buckets=8, max_distance=16, each_layer=True)

test_properties = properties_of(
    {"positions": V3, "norm_place": "post"},
    {"positions": BESIDE, "n_kv_heads": 2},
    {"positions": EACH, "soft_cap": 1.5},
)


def test_scores_are_sums_of_three_products() -> None:
    config = Disentangled(max_distance=16, n_buckets=4)
    network = small.encoder(positions=config, attn_scale=0.2)
    encoding, at = network.last_stack.positions, "encoder.blocks.1.attn"
    assert isinstance(encoding, DisentangledEncoding)
    with torch.no_grad(), trace(network) as seen:
        network(ids(2, 7))
        q, k = seen[f"{at}.q"], seen[f"{at}.k"]
        vectors = {
            side: network.get_submodule(f"{at}.distance.{side}")(encoding.table.weight).unflatten(-1, (4, 4))
            for side in "qk"
        }
    expected = q @ k.mT
    for t in range(7):
        for s in range(7):
            row = distance_rows(torch.tensor(t - s), 4, 16)
            expected[:, :, t, s] += (q[:, :, t] * vectors["k"][row]).sum(-1) + (k[:, :, s] * vectors["q"][row]).sum(-1)
    assert_close(seen[f"{at}.scores"], 0.2 * expected)
    content = seen[f"{at}.scores"] - seen[f"{at}.distance.c2p"] - seen[f"{at}.distance.p2c"]
    assert_close(content, 0.2 * q @ k.mT)


@pytest.mark.parametrize(("buckets", "longest"), [(4, 20), (5, 20), (256, 512), (2, 9), (16, 16)])
def test_buckets_are_the_reference_s(buckets: int, longest: int) -> None:
    deberta = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    distance = torch.arange(-600, 601)
    theirs = deberta.make_log_bucket_position(distance, buckets, longest).long()
    assert torch.equal(distance_rows(distance, buckets, longest), (theirs + buckets).clamp(0, 2 * buckets - 1))


def test_distances_beyond_the_longest_count_as_the_longest() -> None:
    assert distance_rows(torch.arange(-5, 6), None, 3).tolist() == [0, 0, 0, 1, 2, 3, 4, 5, 5, 5, 5]
