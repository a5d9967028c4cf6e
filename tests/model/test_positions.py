"""Where order enters: each encoding against its equation and the well-known implementations."""

import math
from typing import Any

import pytest
import torch

from clearhead import config as c
from clearhead.errors import UserError
from clearhead.model import Tokens
from tests.model import small
from tests.model.small import assert_close, ids


def encoding(config: c.Encoding, *, causal: bool = True, **changes: Any) -> Any:
    """The encoding of a small stack."""
    return config.build(small.stack(**changes), causal=causal)


@pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
@pytest.mark.parametrize("base", [10_000.0, 50.0])
def test_sinusoidal_is_the_paper_s_equation(layout: str, base: float):
    d = 10
    config = c.Sinusoidal.model_validate({"layout": layout, "base": base})
    table = encoding(config, d_model=d, d_head=4).embedding(torch.tensor([[0, 1, 7, 4096]]))[0]
    for row, p in zip(table.tolist(), (0, 1, 7, 4096), strict=True):
        for i in range(d // 2):
            angle = p / base ** (2 * i / d)
            sine, cosine = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, d // 2 + i)
            assert row[sine] == pytest.approx(math.sin(angle), abs=1e-6)
            assert row[cosine] == pytest.approx(math.cos(angle), abs=1e-6)


@pytest.mark.parametrize("cached", [False, True])
def test_learned_positions_refuse_a_longer_text(cached: bool):
    network = small.decoder(positions=c.Learned(max_length=6, offset=2))
    assert network(ids(1, 6)).shape == (1, 6, small.VOCAB)
    cache = network.new_cache()
    if cached:
        network.decode(Tokens(ids(1, 6)), None, cache)
    with pytest.raises(UserError, match=r"length 7.*end at 6"):
        network.decode(Tokens(ids(1, 1 if cached else 7)), None, cache)


def test_rotation_pairs_the_halves_of_a_head():
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
def test_rotated_products_depend_on_distance_alone(scaling: c.RotaryScaling | None, fraction: float):
    rotary = encoding(c.Rotary(fraction=fraction, scaling=scaling), d_head=8)
    q, k = torch.randn(2, 1, 1, 1, 8).expand(2, 1, 1, 5, 8)
    where = torch.tensor([[0, 1, 5, 17, 60]])
    products = (rotary.rotation(where + 4)(q) * rotary.rotation(where)(k)).sum(-1)
    assert_close(products, products[..., :1].expand_as(products))
    assert not torch.allclose(products, (q * k).sum(-1))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (8, 20), (32, 17), (10, 300), (64, 40)])
def test_relative_bias_is_t5_s(causal: bool, n_buckets: int, max_distance: int):
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
def test_alibi_is_bloom_s(n_heads: int):
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    where = torch.arange(9)[None]
    ours = encoding(c.ALiBi(), n_heads=n_heads, d_head=4).score_bias(where, where)
    theirs = bloom.build_alibi_tensor(torch.ones(1, 9), n_heads, torch.float32).view(1, n_heads, 1, 9)
    hidden = torch.ones(9, 9, dtype=torch.bool).triu(1)
    # Theirs adds slope * key position: the same up to one number a row, which softmax ignores.
    ours, theirs = (b.expand(1, n_heads, 9, 9).masked_fill(hidden, float("-inf")).softmax(-1) for b in (ours, theirs))
    assert_close(ours, theirs)
