"""What a network says at the end."""

from typing import Any

import pytest
import torch

from clearhead import config as c
from clearhead.model import Tokens, Transformer
from tests.model import small
from tests.model.small import assert_close, ids, sequences


def with_head(head: c.Head, **changes: Any) -> Transformer:
    return small.shaken(Transformer(c.ModelConfig(encoder=small.stack(**changes), head=head)))


def test_language_head_step_by_step() -> None:
    head = c.LanguageHead(tied=True, bias=True, transform=True, scale=0.5, soft_cap=2.0)
    network = with_head(head, activation="gelu", norm="rms")
    tokens = ids(2, 5)
    (x, _), weights = network.states(tokens), dict(network.head.named_parameters())
    x = torch.nn.functional.gelu(x @ weights["dense.weight"].T + weights["dense.bias"])
    x = x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weights["norm.weight"] * 0.5
    logits = x @ network.last_stack.table.weight.T + weights["output.bias"]
    assert_close(network(tokens), 2 * torch.tanh(logits / 2))
    assert network(tokens).abs().max() <= 2


@pytest.mark.parametrize("pool", ["first", "last", "mean"])
@pytest.mark.parametrize("pooler", [True, False])
def test_classification_counts_no_padding(pool: str, pooler: bool) -> None:
    head = c.ClassificationHead.model_validate({"n_labels": 3, "pool": pool, "pooler": pooler})
    network = with_head(head)
    batch = sequences(5, 2, 7)
    alone = torch.cat([network(torch.tensor([sequence])) for sequence in batch])
    for tokens in (Tokens.pad(batch), Tokens.pad(batch, left=True), Tokens.pad(batch, packed=True)):
        assert_close(network(tokens), alone)


def test_pools_are_what_they_say() -> None:
    states, _ = with_head(c.NoHead()).states(ids(1, 4))
    expected = {"first": states[:, 0], "last": states[:, -1], "mean": states.mean(1)}
    for pool, value in expected.items():
        network = with_head(c.ClassificationHead.model_validate({"n_labels": 2, "pool": pool}))
        output = network.head.get_submodule("output")
        assert_close(network.head(states, network.states(ids(1, 4))[1]), output(value))


@pytest.mark.parametrize(("head", "width"), [(c.TaggingHead(n_labels=5), 5), (c.SpanHead(), 2), (c.NoHead(), 16)])
def test_one_answer_a_position(head: c.Head, width: int) -> None:
    batch = sequences(5, 2)
    network = with_head(head)
    assert network(Tokens.pad(batch)).shape == (2, 5, width)
    assert network(Tokens.pad(batch, packed=True)).shape == (7, width)
