"""Where order enters: each encoding against its equation and the well-known implementations."""

import math
from typing import Any

import pytest
import torch

from clearhead import config as c
from clearhead.config.positions import Together
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.model.positions import (
    TogetherEncoding,
)
from clearhead.trace import trace
from tests.model import small
from tests.model.mechanism import properties_of
from tests.model.small import assert_close, ids


def encoding(config: c.Encoding, *, causal: bool = True, **changes: Any) -> Any:
    """The encoding of a small stack."""
    return config.build(small.stack(**changes), causal=causal)


@pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
@pytest.mark.parametrize("base", [10_000.0, 50.0])
def test_sinusoidal_is_the_paper_s_equation(layout: str, base: float) -> None:
    d = 10
    config = c.Sinusoidal.model_validate({"layout": layout, "base": base})
    table = encoding(config, d_model=d, d_head=4).embedding(torch.tensor([[0, 1, 7, 4096]]))[0]
    for row, p in zip(table.tolist(), (0, 1, 7, 4096), strict=True):
        for i in range(d // 2):
            angle = p / base ** (2 * i / d)
            sine, cosine = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, d // 2 + i)
            assert row[sine] == pytest.approx(math.sin(angle), abs=1e-6)
            assert row[cosine] == pytest.approx(math.cos(angle), abs=1e-6)


def test_learned_reads_its_table_after_the_offset() -> None:
    learned = encoding(c.Learned(max_length=5, offset=2))
    assert learned.table.weight.shape == (7, 16)
    assert torch.equal(learned.embedding(torch.tensor([[0, 4]]))[0], learned.table.weight[[2, 6]])


@pytest.mark.parametrize("cached", [False, True])
def test_learned_positions_refuse_a_longer_text(cached: bool) -> None:
    network = small.decoder(positions=c.Learned(max_length=6, offset=2))
    assert network(ids(1, 6)).shape == (1, 6, small.VOCAB)
    cache = network.new_cache()
    if cached:
        network.decode(Tokens(ids(1, 6)), None, cache)
    with pytest.raises(UserError, match=r"length 7.*end at 6"):
        network.decode(Tokens(ids(1, 1 if cached else 7)), None, cache)


def test_rotation_pairs_the_halves_of_a_head() -> None:
    rotation = encoding(c.Rotary(base=100.0)).rotation(torch.tensor([[3]]))
    (turned,) = rotation(torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 1, 1, 4)).flatten(0, 2)
    for i, angle in enumerate((3.0, 0.3)):
        pair = complex(1.0 + i, 3.0 + i) * complex(math.cos(angle), math.sin(angle))
        assert turned[i].item() == pytest.approx(pair.real, abs=1e-6)
        assert turned[i + 2].item() == pytest.approx(pair.imag, abs=1e-6)


@pytest.mark.parametrize(
    "scaling", [None, c.LinearScaling(factor=3.0), c.WavelengthScaling(factor=3.0, original_length=9)]
)
@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_rotated_products_depend_on_distance_alone(scaling: c.RotaryScaling | None, fraction: float) -> None:
    rotary = encoding(c.Rotary(fraction=fraction, scaling=scaling), d_head=8)
    q, k = torch.randn(2, 1, 1, 1, 8).expand(2, 1, 1, 5, 8)
    where = torch.tensor([[0, 1, 5, 17, 60]])
    products = (rotary.rotation(where + 4)(q) * rotary.rotation(where)(k)).sum(-1)
    assert_close(products, products[..., :1].expand_as(products))
    assert not torch.allclose(products, (q * k).sum(-1))


def test_rotary_fraction_leaves_the_rest_alone() -> None:
    x = torch.randn(1, 1, 3, 8)
    turned = encoding(c.Rotary(fraction=0.5), d_head=8).rotation(torch.tensor([[0, 1, 2]]))(x)
    assert torch.equal(turned[..., 4:], x[..., 4:])
    assert not torch.equal(turned[..., :4], x[..., :4])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (8, 20), (32, 17), (10, 300), (64, 40)])
def test_relative_bias_is_t5_s(causal: bool, n_buckets: int, max_distance: int) -> None:
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    config = t5.T5Config(
        num_heads=4,
        relative_attention_num_buckets=n_buckets,
        relative_attention_max_distance=max_distance,
        is_decoder=causal,
    )
    theirs = t5.T5Attention(config, has_relative_attention_bias=True)
    ours = encoding(c.RelativeBias(n_buckets=n_buckets, max_distance=max_distance), causal=causal)
    ours.table.load_state_dict(theirs.relative_attention_bias.state_dict())
    where = torch.arange(300)[None]
    reference = theirs.compute_bias(300, 300)
    bias = ours.score_bias(where, where)
    if causal:  # what a query may not see has no bias to compare
        hidden = torch.ones(300, 300, dtype=torch.bool).triu(1)
        bias, reference = bias.masked_fill(hidden, 0), reference.masked_fill(hidden, 0)
    assert torch.equal(bias, reference)
    assert torch.equal(ours.score_bias(where[:, 7:9], where), ours.score_bias(where, where)[:, :, 7:9])


@pytest.mark.parametrize("n_heads", [1, 4, 6, 8, 12])
def test_alibi_is_bloom_s(n_heads: int) -> None:
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    where = torch.arange(9)[None]
    ours = encoding(c.ALiBi(), n_heads=n_heads, d_head=4).score_bias(where, where)
    theirs = bloom.build_alibi_tensor(torch.ones(1, 9), n_heads, torch.float32).view(1, n_heads, 1, 9)
    hidden = torch.ones(9, 9, dtype=torch.bool).triu(1)
    # Theirs adds slope * key position: the same up to one number a row, which softmax ignores.
    ours, theirs = (b.expand(1, n_heads, 9, 9).masked_fill(hidden, float("-inf")).softmax(-1) for b in (ours, theirs))
    assert_close(ours, theirs)


@pytest.mark.parametrize("name", ["rotary", "rotary_part", "relative", "alibi", "none"])
def test_relative_positions_ignore_where_a_text_starts(name: str) -> None:
    network = small.decoder(**small.POSITIONS[name])
    tokens, where = ids(1, 6), torch.arange(6)[None]
    with torch.no_grad():
        moved = network(Tokens(tokens, positions=where + 11))
        assert_close(moved, network(tokens))


# --- together ------------------------------------------------------------------------------------------------------


MPNET = Together(added=c.Learned(max_length=24, offset=2), scored=c.RelativeBias(n_buckets=8, max_distance=16))

test_together_properties = properties_of(
    {"positions": MPNET}, {"positions": Together(added=c.Sinusoidal(), scored=c.ALiBi())}
)


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


# --- grids ---------------------------------------------------------------------------------------------------------


IMAGE = {"image_size": 6, "patch_size": 2, "n_registers": 2}
JOINED = c.ClassificationHead(n_labels=3, pool="first_and_mean", patches_only=True)
NETWORKS: dict[str, tuple[dict[str, Any], c.Head]] = {
    "distilled": ({"positions": c.Learned(max_length=12)}, c.ClassificationHead(n_labels=3, distilled=True)),
    "same grid": ({"positions": c.LearnedGrid(side=3), "layer_scale": 0.5}, JOINED),
    "finer grid": ({"positions": c.LearnedGrid(side=2, first=3), "layer_scale": 0.5}, JOINED),
    "coarser grid": ({"positions": c.LearnedGrid(side=7, antialias=True)}, JOINED),
    "turned": ({"positions": c.RotaryGrid(), "key_bias": False}, c.VectorHead(norm=True, width=5)),
    "read": ({"positions": c.NoPositions(), "activation": "quick_gelu"}, c.VectorHead(pool="attention")),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_value_follows_from_its_op(name: str) -> None:
    changes, head = NETWORKS[name]
    network = small.with_head(head, input=c.PatchInput.model_validate(IMAGE), **changes)
    small.assert_values_follow(network, torch.randn(1, 3, 6, 6, generator=torch.Generator().manual_seed(0)))


def test_registers_have_no_position() -> None:
    network = small.with_head(c.NoHead(), input=c.PatchInput.model_validate(IMAGE), positions=c.LearnedGrid(side=3))
    with torch.no_grad(), trace(network) as seen:
        network(torch.randn(1, 3, 6, 6))
    added = seen["encoder.embed.positions"][0]
    assert (added[1:3] == 0).all()
    table = network.get_parameter("encoder.positions.table.weight")
    assert torch.equal(torch.cat([added[:1], added[3:]]), table)


def test_a_picture_moved_by_a_row_turns_the_same() -> None:
    """The product of a query and a key depends on the distance of their patches, in each direction by itself."""
    stack = small.stack(input=c.PatchInput(image_size=8, patch_size=2), positions=c.RotaryGrid())
    network = Transformer(c.ModelConfig(encoder=stack, head=c.NoHead()))
    assert network.encoder is not None
    rotation = network.encoder.positions.rotation(torch.arange(17)[None])
    assert rotation is not None
    q, k = (torch.randn(stack.head_width).expand(1, 1, 17, -1) for _ in range(2))
    products = (rotation(q) @ rotation(k).mT)[0, 0, 1:, 1:]
    patches = {(row, column): 4 * row + column for row in range(4) for column in range(4)}
    for (row, column), at in patches.items():
        for (other_row, other_column), there in patches.items():
            moved = patches.get((row + 1, column + 1)), patches.get((other_row + 1, other_column + 1))
            if None not in moved:
                torch.testing.assert_close(products[at, there], products[moved], rtol=0, atol=1e-4)
    assert torch.equal(rotation(q)[0, 0, 0], q[0, 0, 0])
