"""What a network says at the end."""

import pytest
import torch

from clearhead import config as c
from clearhead.model import Tokens, heads
from clearhead.model.heads import LanguageHead, NoHead
from tests.model.small import VOCAB, assert_close, ids, sequences, with_head


def test_language_head_step_by_step():
    head = c.LanguageHead(tied=True, bias=True, transform=True, scale=0.5, soft_cap=2.0)
    network = with_head(head, activation="gelu", norm="rms")
    tokens = ids(2, 5)
    (x, _), weights = network.states(tokens), dict(network.head.named_parameters())
    x = torch.nn.functional.gelu(x @ weights["dense.weight"].T + weights["dense.bias"])
    x = x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weights["norm.weight"] * 0.5
    logits = x @ network.last_stack.table.weight.T + weights["output.bias"]
    assert_close(network(tokens), 2 * torch.tanh(logits / 2))
    assert network(tokens).abs().max() <= 2


NARROW = c.TokenInput(vocab_size=VOCAB, width=6, norm=True)


@pytest.mark.parametrize(
    "head",
    [
        c.LanguageHead(transform=True, bias=True),
        c.TaggingHead(n_labels=1, transform=True, transform_norm=False),
        c.ClassificationHead(n_labels=3, pool="mean"),
        c.ClassificationHead(n_labels=3, pool="last", transform=True),
        c.ClassificationHead(n_labels=3, pool="mean", pooler=True, pools_last=True),
    ],
    ids=str,
)
@torch.no_grad()
def test_padding_counts_nowhere(head: c.Head):
    network, batch = with_head(head, input=NARROW), sequences(5, 2, 7)
    alone = torch.cat([network(torch.tensor([sequence])).flatten(0, -2) for sequence in batch])
    for tokens in (Tokens.pad(batch), Tokens.pad(batch, left=True), Tokens.pad(batch, packed=True)):
        logits = network(tokens)
        assert_close(tokens.real(logits) if logits.ndim == 3 else logits, alone)


@pytest.mark.parametrize(
    "head",
    [
        c.ClassificationHead(n_labels=3, pooler=True, dropout=0.5),
        c.TaggingHead(n_labels=3, dropout=0.5),
        c.SpanHead(transform=True, dropout=0.5),
    ],
)
def test_dropout_of_a_head_is_on_what_the_output_reads(head: c.Head):
    network = with_head(head, d_model=64)
    tokens = ids(8, 5)
    kept = with_head(head.model_copy(update={"dropout": 0.0}), d_model=64)
    assert_close(network(tokens), kept(tokens))
    reads: list[torch.Tensor] = []
    network.head.get_submodule("output").register_forward_pre_hook(lambda _, inputs: reads.append(inputs[0]))
    network(tokens)
    network.train()(tokens)
    whole, dropped = reads
    assert_close(dropped[dropped != 0], 2 * whole[dropped != 0])
    assert (dropped == 0).float().mean().item() == pytest.approx(0.5, abs=0.1)


def test_pooler_of_the_states_is_of_the_first_real_one():
    network = with_head(c.NoHead(pooler=True))
    assert isinstance(network.head, NoHead)
    assert network.head.pooler is not None
    batch = sequences(5, 2, 7)
    alone = [network(torch.tensor([sequence]))[:, 0] for sequence in batch]
    expected = network.head.pooler(torch.cat(alone)).tanh()
    for tokens in (Tokens.pad(batch), Tokens.pad(batch, left=True), Tokens.pad(batch, packed=True)):
        assert_close(network.head.pooled(*network.states(tokens)), expected)


@pytest.mark.parametrize(("head", "width"), [(c.TaggingHead(n_labels=5), 5), (c.SpanHead(), 2), (c.NoHead(), 16)])
def test_one_answer_a_position(head: c.Head, width: int):
    batch = sequences(5, 2)
    network = with_head(head)
    assert network(Tokens.pad(batch)).shape == (2, 5, width)
    assert network(Tokens.pad(batch, packed=True)).shape == (7, width)


@pytest.mark.parametrize("chunk", [4 * 30, 1 << 24], ids=["pieces", "one piece"])
def test_many_logits_are_not_kept_for_the_backward_pass(chunk: int, monkeypatch):
    """Neither in pieces nor in one, and the loss and its gradients are those of PyTorch's own."""
    network = with_head(c.LanguageHead(tied=True))
    labels = ids(2, 5).flatten()

    def kept_and_gradients() -> tuple[list[int], list[torch.Tensor]]:
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x):
            loss = network(ids(2, 5), labels=labels, smoothing=0.1)
        return sizes, [loss, *torch.autograd.grad(loss, list(network.parameters()))]

    assert isinstance(network.head, LanguageHead)
    n_logits = len(labels) * network.head.output.out_features
    plain, wanted = kept_and_gradients()
    monkeypatch.setattr(heads, "FEW", 0)
    network.head.chunk = chunk
    kept, got = kept_and_gradients()
    assert plain.count(n_logits) > kept.count(n_logits) == 0
    for one, other in zip(got, wanted, strict=True):
        assert_close(one, other)
