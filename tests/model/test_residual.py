"""Where the norm goes, and whole blocks against the well-known implementations."""

import pytest
import torch
from torch import Tensor

from clearhead.model.residual import Residual
from clearhead.trace import trace
from tests.model import small
from tests.model.small import assert_close, ids

X = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(0))


def half(x: Tensor) -> Tensor:
    return x.flip(-1) / 2


@pytest.mark.parametrize("place", ["pre", "post", "sandwich"])
def test_equation(place: str):
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


def test_dropout_falls_on_the_branch_alone():
    residual = Residual(small.stack(dropout=0.5))
    out = residual(X, torch.ones_like, residual.norms(), True)
    branch = (out - X).round(decimals=4)
    assert set(branch.unique().tolist()) == {0.0, 2.0}


def test_dropout_of_the_embedding_is_its_own():
    for changes, share in (({"dropout": 0.5, "embed_dropout": 0.0}, 0.0), ({"embed_dropout": 0.25}, 0.25)):
        network = small.encoder(**changes).train()
        with trace(network) as t:
            network(ids(8, 16))
        dropped = (t["encoder.blocks.0.resid_pre"] == 0).float().mean().item()
        assert dropped == pytest.approx(share, abs=0.04)
