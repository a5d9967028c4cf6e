"""In training the last block computes only those states that the loss reads."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Tokens, Transformer
from clearhead.model.loss import IGNORED
from clearhead.model.transformer import Stack
from clearhead.trace import trace
from tests.model import small
from tests.model.small import assert_close, sequences

LENGTHS = 24, 9, 21
N = sum(LENGTHS)
STACKS: dict[str, dict[str, Any]] = {
    "pre": {"final_norm": True},
    "post_learned": {"norm_place": "post", "positions": c.Learned(max_length=24)},
    "rotary_parallel": {"positions": c.Rotary(), "parallel": "two_norms"},
    "alibi_one_norm": {"positions": c.ALiBi(), "parallel": "one_norm"},
    "window_sandwich": {"window": 4, "norm_place": "sandwich"},
    "scaled_branch": {"norm_place": "branch", "branch_scale": 0.5, "n_kv_heads": 2},
}
HEADS: dict[str, c.Head] = {
    "words": c.LanguageHead(),
    "tags": c.TaggingHead(n_labels=5, transform=True),
    "first": c.ClassificationHead(n_labels=3, pool="first", pooler=True),
    "last": c.ClassificationHead(n_labels=3, pool="last"),
}


def network_of(stack: dict[str, Any], head: c.Head, *, causal: bool) -> Transformer:
    made = small.stack(**stack)
    config = c.ModelConfig(decoder=made, head=head) if causal else c.ModelConfig(encoder=made, head=head)
    return small.shaken(Transformer(config)).train()


def gradients(network: Transformer, tokens: Tokens, labels: Tensor | None) -> dict[str, Tensor]:
    loss = network(tokens).square().sum() if labels is None else network(tokens, labels=labels)
    return small.gradients(network, loss)


def rows_of_last_block(network: Transformer, tokens: Tokens, labels: Tensor | None) -> int:
    """The states that its feed-forward network reads in a forward pass."""
    seen: list[int] = []
    ffn = network.last_stack.blocks[-1].get_submodule("ffn")
    handle = ffn.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].flatten(0, -2).shape[0]))
    network(tokens) if labels is None else network(tokens, labels=labels)
    handle.remove()
    return seen[0]


@pytest.mark.parametrize(
    ("stack", "name", "causal", "packed"),
    [
        (stack, name, causal, packed)
        for i, stack in enumerate(STACKS)
        for j, name in enumerate(HEADS)
        for causal, packed in itertools.product((True, False), repeat=2)
        if i == 0 or (i + j + causal + 2 * packed) % 4 == 0
    ],
)
def test_gradients_are_those_of_all_states(stack: str, name: str, causal: bool, packed: bool, monkeypatch):
    """Of one stack all heads both ways, of the others each head in turn."""
    head = HEADS[name]
    network = network_of(STACKS[stack], head, causal=causal)
    tokens = Tokens.pad(sequences(*LENGTHS), packed=packed)
    labels = None
    if not isinstance(head, c.ClassificationHead):
        labels = torch.full((N,), IGNORED).index_fill_(0, torch.tensor([3, 8, 25, N - 1]), 2)
    assert rows_of_last_block(network, tokens, labels) == 16, "the few that are read, and up to a round number"
    found = gradients(network, tokens, labels)
    monkeypatch.setattr(Stack, "last_layout", lambda *_: None)
    assert rows_of_last_block(network, tokens, labels) > N - 1
    expected = gradients(network, tokens, labels)
    assert set(found) == set(expected)
    for name, gradient in expected.items():
        assert_close(found[name], gradient)


@pytest.mark.parametrize("recompute", [False, True])
def test_across_two_stacks(recompute: bool, monkeypatch):
    network = small.encoder_decoder(n_layers=1, positions=c.Rotary()).train()
    for stack in network.stacks().values():
        stack.recompute = recompute
    both = [Tokens.pad(sequences(*lengths), packed=True) for lengths in ((7, 12), (22, 18))]
    labels = torch.full((40,), IGNORED).index_fill_(0, torch.tensor([0, 21, 22]), 1)
    found = small.gradients(network, network(*both, labels=labels))
    monkeypatch.setattr(Stack, "last_layout", lambda *_: None)
    for name, gradient in small.gradients(network, network(*both, labels=labels)).items():
        assert_close(found[name], gradient)


def test_all_states_where_they_may_be_looked_at():
    head = HEADS["first"]
    network, tokens = network_of(STACKS["pre"], head, causal=False), Tokens.pad(sequences(*LENGTHS), packed=True)
    assert rows_of_last_block(network, tokens, None) == 16
    with trace(network) as t:
        network(tokens)
    assert t["encoder.blocks.1.resid_post"].shape[:2] == tokens.grid
    assert rows_of_last_block(network.eval(), tokens, None) >= N
    for all_read in (c.ClassificationHead(n_labels=3, pool="mean"), c.TaggingHead(n_labels=3)):
        assert rows_of_last_block(network_of({}, all_read, causal=False), tokens, None) >= N
