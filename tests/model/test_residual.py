"""Where the norm goes, and whole blocks against the well-known implementations."""

from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead import config as c
from clearhead.analysis.attribution import attribute
from clearhead.errors import UserError
from clearhead.model.meta import ops_of
from clearhead.model.positions import rotary_frequencies
from clearhead.model.residual import Residual
from clearhead.trace import trace
from tests.model import small
from tests.model.mechanism import properties_of
from tests.model.small import assert_close, ids

X = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(0))


def half(x: Tensor) -> Tensor:
    return x.flip(-1) / 2


@pytest.mark.parametrize("place", ["pre", "post", "sandwich"])
def test_equation(place: str) -> None:
    residual = Residual(small.stack(norm_place=place))
    norm, second = residual.norms()
    assert norm is not None
    small.assign(norm, weight=torch.rand(16), bias=torch.rand(16))
    assert (second is not None) == (place == "sandwich")
    if second is not None:
        small.assign(second, weight=torch.rand(16), bias=torch.rand(16))
        expected = X + second(half(norm(X)))
    else:
        expected = X + half(norm(X)) if place == "pre" else norm(X + half(X))
    assert_close(residual(X, half, (norm, second), False), expected)


def test_dropout_falls_on_the_branch_alone() -> None:
    residual = Residual(small.stack(dropout=0.5))
    out = residual(X, torch.ones_like, residual.norms(), True)
    branch = (out - X).round(decimals=4)
    assert set(branch.unique().tolist()) == {0.0, 2.0}


# --- decoder mechanisms --------------------------------------------------------------------------------------------


BRANCH: dict[str, Any] = {"norm_place": "branch", "norm": "rms"}
HEADS: dict[str, Any] = {"qk_norm": True, "qk_norm_over": "heads", "n_kv_heads": 2}
PLUS_ONE: dict[str, Any] = {"norm_gain": "one_plus_weight"}
FACTORS: dict[str, Any] = {"branch_scale": 0.4, "input": c.TokenInput(vocab_size=small.VOCAB, factor=3.0, scale=True)}
SOME: dict[str, Any] = {"positions": c.Rotary(), "rotary_layers": (1,)}
LONG = c.LongScaling(divisors=(1.5, 2.5), original_length=20, attention_factor=1.2)

test_decoder_mechanisms_properties = properties_of(
    BRANCH | HEADS | {"positions": c.Rotary(scaling=LONG)},
    PLUS_ONE | {"norm": "rms", "norm_place": "sandwich"},
    PLUS_ONE | FACTORS | {"positions": c.ALiBi()},
    SOME,
)


def test_a_norm_of_the_branch() -> None:
    network, at = small.decoder(**BRANCH, n_layers=2), "decoder.blocks.1"
    assert not [
        name for name, _ in network.named_parameters() if name.endswith(("attn_norm.weight", "ffn_norm.weight"))
    ]
    with torch.no_grad(), trace(network) as seen:
        network(ids(2, 5))
    norm, ffn = (network.get_submodule(f"{at}.{name}") for name in ("attn_out_norm", "ffn"))
    assert_close(seen[f"{at}.attn_out_norm.out"], norm(seen[f"{at}.attn.out"]))
    assert_close(seen[f"{at}.ffn.out"], ffn(seen[f"{at}.resid_attn"]))
    assert_close(seen[f"{at}.resid_post"], seen[f"{at}.resid_attn"] + seen[f"{at}.ffn_out_norm.out"])


def test_all_heads_are_normalised_together() -> None:
    network, at = small.decoder(**HEADS, norm="rms"), "decoder.blocks.0.attn"
    with torch.no_grad(), trace(network) as seen:
        network(ids(2, 5))
        x = seen["decoder.blocks.0.attn_norm.out"]
        k = network.get_submodule(f"{at}.k_norm")(network.get_submodule(f"{at}.k")(x))
    assert k.shape == (2, 5, 8)
    assert_close(seen[f"{at}.k"], k.unflatten(-1, (2, 4)).transpose(1, 2))


@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_a_gain_of_one_plus_the_weight(norm: str) -> None:
    plain, network = small.decoder(norm=norm), small.decoder(norm=norm, **PLUS_ONE)
    with torch.no_grad():
        for (name, a), b in zip(plain.named_parameters(), network.parameters(), strict=True):
            b.copy_(a - 1 if name.endswith("norm.weight") else a)
    assert_close(network(ids(2, 5)), plain(ids(2, 5)))
    assert "decoder.final_norm.gain" in {name for op in ops_of(network.config) for name in op.weights}


def test_factors() -> None:
    network, at = small.decoder(**FACTORS), "decoder.blocks.0"
    with torch.no_grad(), trace(network) as seen:
        network(ids(2, 5))
    assert_close(seen["decoder.embed.tokens"], network.last_stack.table(ids(2, 5)) * 12.0)
    assert_close(seen[f"{at}.resid_attn"], seen[f"{at}.resid_pre"] + 0.4 * seen[f"{at}.attn.out"])


@pytest.mark.parametrize("changes", [FACTORS, BRANCH, PLUS_ONE], ids=["factors", "branch", "gain"])
def test_attribution_adds_up(changes: dict[str, Any]) -> None:
    found = attribute(small.decoder(**changes), [ids(2, 5)], 3)
    assert_close(torch.stack([*found.shares.values()]).sum(0), found.logit)


def test_some_layers_do_not_rotate() -> None:
    network = small.decoder(**SOME)
    rotations = {op.out for op in ops_of(network.config) if op.op == "rotate"}
    assert rotations == {f"decoder.blocks.1.attn.{side}" for side in "qk"}


def test_angles_divided_one_by_one() -> None:
    plain, _ = rotary_frequencies(c.Rotary(), 4)
    assert rotary_frequencies(c.Rotary(scaling=LONG), 4)[0] == [plain[0] / 1.5, plain[1] / 2.5]
    with pytest.raises(UserError, match="length 21: this model's positions end at 20"):
        small.decoder(positions=c.Rotary(scaling=LONG))(ids(1, 21))
