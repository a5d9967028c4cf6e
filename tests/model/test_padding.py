"""Nothing that stands in padding reaches a real position or a gradient, to the bit: neither NaN, infinity nor 1e30."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clearhead import config as c
from clearhead.generation import complete
from clearhead.model import Layout, Tokens, Transformer
from clearhead.model import attention as attention_module
from clearhead.model.heads import Pool, pool
from clearhead.recipe.generation import GenerationConfig
from clearhead.trace import Trace, trace
from tests.model import small
from tests.model.small import ids, sequences
from tests.model.test_properties import stacks

PADDING = small.VOCAB - 1
"""The token that fills the padding, and stands nowhere else."""
PLANTED = [float("nan"), float("inf"), -float("inf"), 1e30]
SOURCES, TARGETS = ([[i % PADDING for i in ids] for ids in sequences(*n)] for n in ((3, 6, 1), (5, 2, 7)))


def network_of(config: c.StackConfig, kind: str, seed: int = 0) -> Transformer:
    """In which no token but the padding reads row PADDING of the tables."""
    torch.manual_seed(seed)
    encoder, decoder = (config if part in kind else None for part in ("encoder", "decoder"))
    model = c.ModelConfig(encoder=encoder, decoder=decoder, head=c.LanguageHead(tied=False, bias=True))
    network = small.shaken(Transformer(model))
    with torch.no_grad():
        network.get_parameter("head.output.weight")[PADDING] = 0.0
        network.get_parameter("head.output.bias")[PADDING] = -1e4  # What is written is read: never this one.
    return network


def inputs_of(network: Transformer, *, left: bool) -> list[Tokens]:
    both = [(network.encoder, SOURCES), (network.decoder, TARGETS)]
    return [Tokens.pad(texts, fill=PADDING, left=left) for stack, texts in both if stack is not None]


@torch.no_grad()
def plant(network: Transformer, value: float) -> None:
    for stack in (network.encoder, network.decoder):
        if stack is not None:
            stack.table.weight[PADDING] = value


def seen_by(network: Transformer, inputs: list[Tokens]) -> Tensor:
    """Logits at real positions."""
    return inputs[-1].real(network(*inputs))


def unseen(address: str, axes: str, inputs: list[Tokens], value: float) -> Callable[[Tensor], Tensor]:
    """An edit that puts the value into every padded cell of an address, of queries and of keys."""
    names, queries = axes.split(), inputs[0] if address.startswith("encoder") else inputs[-1]
    keys = inputs[0] if ".cross." in address else queries

    def edit(x: Tensor) -> Tensor:
        for axis, tokens in (("t", queries), ("s", keys)):
            if axis in names:
                assert tokens.valid is not None
                shape = [n if name in ("b", axis) else 1 for name, n in zip(names, x.shape, strict=True)]
                x.masked_fill_(~tokens.valid.view(shape), value)  # In place: an edit may.
        return x

    return edit


def traced(network: Transformer, inputs: list[Tokens], seen: Trace | None, value: float) -> tuple[Trace, Tensor]:
    """With the value in the padding of every address that `seen` has, all at once."""
    edits = {} if seen is None else {a: unseen(a, seen.axes[a], inputs, value) for a in seen}
    with trace(network, edits) as t:
        logits = seen_by(network, inputs)
    return t, logits


kinds = st.sampled_from(["encoder", "decoder", "encoder decoder"])


@given(stacks(), kinds, st.booleans(), st.sampled_from(PLANTED), st.integers(0, 99))
@settings(max_examples=40)
def test_nothing_planted_in_padding_reaches_a_real_position(
    config: c.StackConfig, kind: str, left: bool, value: float, seed: int
):
    network = network_of(config, kind, seed)
    inputs = inputs_of(network, left=left)
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        for most in (0, attention_module.EXPLICIT_UP_TO):
            patch.setattr(attention_module, "EXPLICIT_UP_TO", most)
            plant(network, 0.0)
            expected = seen_by(network, inputs)
            plant(network, value)
            assert expected.isfinite().all()
            assert torch.equal(seen_by(network, inputs), expected), "through the table"
            if network.encoder and network.decoder:
                states, layout = network.encode(inputs[0])
                assert layout.valid is not None
                states = states.masked_fill(~layout.valid[..., None], value)
                found, there = network.decoder(inputs[1], (states, layout))
                assert torch.equal(inputs[1].real(network.head(found, there)), expected), "through the memory"
                cache = network.new_cache()
                cached = network.decode(inputs[1], (states, layout), cache)
                assert torch.equal(inputs[1].real(cached), expected), "through a cache"
        seen, expected = traced(network, inputs, None, value)
        assert torch.equal(traced(network, inputs, seen, value)[1], expected), "through an edit"


@given(stacks(), kinds, st.booleans(), st.sampled_from(PLANTED), st.booleans(), st.booleans())
@settings(max_examples=25)
def test_nothing_planted_in_padding_reaches_a_gradient(
    config: c.StackConfig, kind: str, left: bool, value: float, fused: bool, edited: bool
):
    network = network_of(config, kind)
    inputs = inputs_of(network, left=left)
    labels = torch.arange(sum(map(len, TARGETS if network.decoder else SOURCES))) % PADDING
    seen = traced(network, inputs, None, value)[0] if edited else None

    def gradients(planted: float) -> list[Tensor]:
        plant(network, planted)
        network.zero_grad()
        if seen is None:
            network(*inputs, labels=labels).backward()
        else:
            edits = {a: unseen(a, seen.axes[a], inputs, planted) for a in seen}
            with trace(network, edits):
                network(*inputs, labels=labels).backward()
        return [p.grad.clone() for p in network.parameters() if p.grad is not None]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_module, "EXPLICIT_UP_TO", 0 if fused else 512)
        expected, found = gradients(0.0), gradients(value)
    assert all(g.isfinite().all() for g in found)
    assert all(map(torch.equal, found, expected))


@given(stacks(), st.booleans(), st.sampled_from(PLANTED), st.sampled_from([1, 3]), st.booleans())
@settings(max_examples=25)
@torch.no_grad()
def test_nothing_planted_in_padding_reaches_a_text(
    config: c.StackConfig, with_encoder: bool, value: float, beams: int, looks: bool
):
    network = network_of(config, "encoder decoder" if with_encoder else "decoder")
    how = GenerationConfig(max_new_tokens=3, beams=beams, start_id=PADDING - 1, end_ids=(PADDING - 2,))
    padded = Tokens.pad

    def written(planted: float) -> list[list[tuple[tuple[int, ...], float]]]:
        plant(network, planted)
        source = SOURCES if with_encoder else None
        with trace(network) if looks else torch.no_grad():
            found = complete(network, TARGETS, source=source, config=how)
        return [[(h.tokens, h.score) for h in several] for several in found]

    with pytest.MonkeyPatch.context() as patch:
        # Filled with a token that nothing else reads, and the source padded too.
        patch.setattr(Tokens, "pad", lambda texts, *, left=False, packed=False: padded(texts, fill=PADDING, left=left))
        assert written(value) == written(0.0)


@pytest.mark.parametrize("how", ["first", "last", "mean"])
@pytest.mark.parametrize("value", PLANTED)
def test_pooling_never_reads_padding(how: Pool, value: float):
    for left in (False, True):
        valid = Tokens.pad(SOURCES, left=left).valid
        assert valid is not None
        valid = torch.cat([valid, torch.zeros_like(valid[:1])])  # A row of padding alone is finite too.
        x = torch.randn(4, 6, 5, requires_grad=True)
        zeros = x.masked_fill(~valid[..., None], 0.0)
        planted = x.masked_fill(~valid[..., None], value)
        assert torch.equal(pool(planted, valid, how)[:3], pool(zeros, valid, how)[:3])
        pool(planted, valid, how)[:3].sum().backward()
        assert x.grad is not None
        assert x.grad.isfinite().all()
        assert pool(zeros, valid, how).isfinite().all()


@pytest.mark.parametrize("packed", [False, True])
def test_a_norm_that_makes_nan_of_zeros_stays_in_the_padding(packed: bool):
    """An epsilon so small that float32 has none: RMSNorm of a zero vector is then 0 times infinity."""
    config = small.stack(norm="rms", norm_eps=1e-46, qk_norm=True, bias=False)
    network = network_of(config, "encoder")
    tokens = Tokens.pad(SOURCES, fill=PADDING, packed=packed)
    with torch.no_grad():
        logits = tokens.real(network(tokens)) if not packed else network(tokens)
        small.assert_close(logits[: len(SOURCES[0])], network(torch.tensor([SOURCES[0]]))[0])


@torch.no_grad()
def test_an_edit_leaves_padding_as_it_is():
    network, tokens = network_of(small.stack(), "decoder"), Tokens.pad(TARGETS, fill=PADDING)
    at = "decoder.blocks.0.resid_post"
    with trace(network) as plain:
        network(tokens)
    with trace(network, {at: 2.0}) as edited:
        network(tokens)
    assert tokens.valid is not None
    assert torch.equal(edited[at][tokens.valid], torch.full_like(edited[at][tokens.valid], 2.0))
    assert torch.equal(edited[at][~tokens.valid], plain[at][~tokens.valid])


def test_a_batch_without_padding_is_not_touched():
    layouts = [Tokens(ids(2, 3)), Tokens.pad(SOURCES, packed=True)]
    x = torch.randn(2, 3, 4)
    assert all(Layout.of(tokens).blank(x) is x for tokens in layouts)
