"""Disentangled attention: scores of states with vectors of distances."""

import pytest
import torch

from clearhead.model.distances import distance_rows


@pytest.mark.parametrize(("buckets", "longest"), [(4, 20), (5, 20), (256, 512), (2, 9), (16, 16)])
def test_buckets_are_the_reference_s(buckets: int, longest: int):
    deberta = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    distance = torch.arange(-600, 601)
    theirs = deberta.make_log_bucket_position(distance, buckets, longest).long()
    assert torch.equal(distance_rows(distance, buckets, longest), (theirs + buckets).clamp(0, 2 * buckets - 1))


def test_distances_beyond_the_longest_count_as_the_longest():
    assert distance_rows(torch.arange(-5, 6), None, 3).tolist() == [0, 0, 0, 1, 2, 3, 4, 5, 5, 5, 5]
