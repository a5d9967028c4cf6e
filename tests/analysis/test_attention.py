import math

import pytest
import torch
from torch import Tensor

from clearhead.analysis.attention import (
    CrossAttention,
    HeadKind,
    aligned,
    cross_attention,
    head_statistics,
    statistics,
    weighted_norms,
)
from clearhead.errors import UserError
from clearhead.model import Layout, Tokens
from tests.analysis.kinds import CASES, traced
from tests.model import small


def layout(*lengths: int, left: bool = False) -> Layout:
    return Layout.of(Tokens.pad(small.sequences(*lengths), left=left))


def shifted(t: int, by: int) -> Tensor:
    """t s: all weight on s = t + by, or on t where there is none."""
    return torch.eye(t)[[i + by if 0 <= i + by < t else i for i in range(t)]]


def test_a_matrix_with_known_numbers():
    weights = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]])
    (found,) = statistics(weights[None, None], layout(3))
    assert found.entropy == pytest.approx((0 + math.log(2) + 1.5 * math.log(2)) / 3)
    assert found.relative_entropy == pytest.approx((1 + 1.5 * math.log(2) / math.log(3)) / 2)
    assert found.previous == pytest.approx((0.5 + 0.25) / 2), "the first query has no previous key"
    assert found.same == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert found.next == 0
    assert found.first == pytest.approx((1 + 0.5 + 0.25) / 3)
    assert (found.offset, found.offset_share) == (0, pytest.approx(2 / 3))
    assert found.distance == pytest.approx((0 + 0.5 + 0.75) / 3)
    assert found.kind == "same"


@pytest.mark.parametrize(
    ("weights", "kind", "offset"),
    [
        (shifted(6, -1), "previous", -1),
        (shifted(6, 0), "same", 0),
        (shifted(6, 1), "next", 1),
        (shifted(6, -2), "other", -2),
        (torch.eye(6)[[0] * 6], "first", 0),
        (torch.full((6, 6), 1 / 6), "uniform", 0),
        (torch.ones(6, 6).tril() / torch.arange(1, 7)[:, None], "uniform", 0),
    ],
)
@pytest.mark.parametrize("left", [False, True])
def test_kinds_and_offsets_also_in_padding(weights: Tensor, kind: HeadKind, offset: int, left: bool):
    cells = slice(2, None) if left else slice(6)
    wide = torch.full((1, 1, 8, 8), 0.125)
    wide[0, 0, cells, cells] = weights
    both = torch.cat([wide, torch.zeros_like(wide)])
    both[1, 0] = torch.nn.functional.pad(weights, (0, 2, 0, 2)) if not left else wide[0, 0]
    valid = torch.zeros(2, 8, dtype=torch.bool)
    valid[:, cells] = True
    (found,) = statistics(both, Layout.of(Tokens(torch.zeros(2, 8, dtype=torch.long), valid)))
    (alone,) = statistics(weights[None, None], layout(6))
    assert found.kind == alone.kind == kind
    assert found.offset == alone.offset == offset
    assert vars(found) == pytest.approx(vars(alone))


def test_cross_attention_has_keys_of_its_own():
    weights = torch.zeros(1, 2, 3, 5)
    weights[0, 0, :, :4] = 0.25
    weights[0, 1, range(3), range(3)] = 1.0
    even, diagonal = statistics(
        weights, layout(3), Layout.of(Tokens(torch.zeros(1, 5).long(), torch.arange(5)[None] < 4))
    )
    assert even.kind == "uniform"
    assert even.entropy == pytest.approx(math.log(4))
    assert (diagonal.kind, diagonal.offset, diagonal.distance) == ("same", 0, 0)
    with pytest.raises(UserError, match="b h t s"):
        statistics(weights, layout(3))


@pytest.mark.parametrize("name", CASES)
def test_every_head_of_a_network(name: str):
    network, inputs = CASES[name]()
    seen, _ = traced(network, inputs)
    found = head_statistics(network, inputs, seen)
    assert len(found) == (24 if len(inputs) == 2 else 8)
    for address, one in found.items():
        assert seen[address].ndim == 3, address
        assert all(math.isfinite(value) for value in vars(one).values())
        assert 0 <= one.relative_entropy <= 1 + 1e-6
        if address.startswith("decoder") and ".attn." in address:
            assert one.next == 0
            assert one.offset <= 0


@pytest.mark.parametrize("name", ["decoder", "decoder_grouped_rotary", "encoder_decoder"])
def test_weighted_norms_are_those_of_the_vectors_that_sum_to_the_head(name: str):
    network, inputs = CASES[name]()
    seen, _ = traced(network, inputs)
    path = "decoder.blocks.1.cross" if len(inputs) == 2 else "decoder.blocks.1.attn"
    v, weights = seen[f"{path}.v"], seen[f"{path}.weights"]
    v = v.repeat_interleave(4 // v.shape[1], 1)
    out = network.get_parameter(f"{path}.out.weight").detach().unflatten(1, (4, -1))
    vectors = torch.einsum("bhts,bhsk,dhk->bhtsd", weights, v, out)
    small.assert_close(vectors.sum(3), seen[f"{path}.heads"])
    torch.testing.assert_close(weighted_norms(network, seen, path), vectors.norm(dim=-1), atol=1e-4, rtol=1e-4)
    with pytest.raises(UserError, match="expected an attention"):
        weighted_norms(network, seen, "decoder.blocks.1.ffn")


BOS = 2
TARGET = [[6, 5, 3], [9, 8, 7, 3], [3], [12, 11, 4, 5, 6, 3]]
SOURCE = [[5, 6, 3], [7, 3], [8, 9, 10, 11, 3], [4, 4, 3]]


@pytest.mark.parametrize("budget", [1, 12, 8192])
def test_batched_is_each_pair_alone(budget: int):
    network = small.encoder_decoder()
    found = cross_attention(network, SOURCE, TARGET, bos_id=BOS, budget=budget)
    assert len(found) == len(SOURCE)
    for source, target, look in zip(SOURCE, TARGET, found, strict=True):
        inputs = torch.tensor([[BOS, *target[:-1]]])
        seen, logits = traced(network, [torch.tensor([source]), inputs])
        assert look.weights.shape == (2, 4, len(target), len(source)), "l h t s"
        for layer in range(2):
            torch.testing.assert_close(look.weights[layer], seen[f"decoder.blocks.{layer}.cross.weights"][0])
        expected = logits[0].softmax(-1)[range(len(target)), target]
        torch.testing.assert_close(look.probabilities, expected)


def test_aligned_is_the_strongest_of_the_mean_over_heads():
    heads = torch.tensor([[[0.6, 0.0, 0.4], [0.1, 0.2, 0.7]], [[0.0, 0.3, 0.7], [0.9, 0.0, 0.1]]])
    weights = torch.stack([heads, heads.flip(-1)])
    look = CrossAttention(weights, torch.ones(2))
    assert aligned(look, 0) == [2, 0]
    assert aligned(look, 1) == [0, 2]


def test_a_single_stack_has_none():
    with pytest.raises(UserError, match="expected an encoder-decoder"):
        cross_attention(small.decoder(), SOURCE, TARGET, bos_id=BOS)
