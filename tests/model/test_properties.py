"""What holds for every mechanism: the past sees no future, padding changes nothing, every path agrees."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead import config as c
from clearhead.model import Tokens, Transformer
from clearhead.model import attention as attention_module
from tests.model import small
from tests.model.small import assert_close, difference, ids, rows, sequences

mechanisms = pytest.mark.parametrize("changes", small.PAIRS.values(), ids=small.PAIRS.keys())


@mechanisms
@torch.no_grad()
def test_causality_is_exact(changes: dict[str, Any]):
    network = small.decoder(**changes)
    first = ids(2, 9)
    second = first.clone()
    second[:, 5:] = (second[:, 5:] + 1) % small.VOCAB
    change = (network(first) - network(second)).abs()
    assert change[:, :5].max() == 0
    assert change[:, 5:].amax((0, 2)).min() > 0


@mechanisms
@torch.no_grad()
def test_padding_changes_nothing(changes: dict[str, Any]):
    lengths = (5, 8, 1)
    batch = sequences(*lengths)
    for network in (small.decoder(**changes), small.encoder(**changes)):
        alone = [network(torch.tensor([sequence]))[0] for sequence in batch]
        for left in (False, True):
            tokens = Tokens.pad(batch, left=left)
            logits = network(tokens)
            for own, reference in zip(rows(tokens, logits), alone, strict=True):
                assert_close(own, reference)
            other = Tokens.pad(batch, left=left, fill=7)
            assert torch.equal(other.real(network(other)), tokens.real(logits)), "a padding id reached a result"


@mechanisms
@torch.no_grad()
def test_encoder_decoder_with_padding_and_packing(changes: dict[str, Any]):
    network = small.encoder_decoder(**changes)
    source, target = sequences(4, 7, 2), sequences(6, 3, 5)
    alone = [network(torch.tensor([s]), torch.tensor([t]))[0] for s, t in zip(source, target, strict=True)]
    for left in (False, True):
        tokens = Tokens.pad(target, left=left)
        logits = network(Tokens.pad(source, left=left), tokens)
        for own, reference in zip(rows(tokens, logits), alone, strict=True):
            assert_close(own, reference)
    packed = Tokens.pad(target, packed=True)
    logits = network(Tokens.pad(source, packed=True), packed)
    assert_close(logits, torch.cat(alone))


@mechanisms
@torch.no_grad()
def test_fused_is_explicit(changes: dict[str, Any], monkeypatch):
    source, target = Tokens.pad(sequences(4, 7)), Tokens.pad(sequences(6, 3), left=True)
    whole = ids(2, 7)
    networks = (small.decoder(**changes), small.encoder(**changes), small.encoder_decoder(**changes))

    def results() -> list[torch.Tensor]:
        decoder, encoder, both = networks
        return [decoder(whole), decoder(target), encoder(whole), encoder(source), both(source, target)]

    explicit = results()
    monkeypatch.setattr(attention_module, "EXPLICIT_UP_TO", 0)
    for fused, reference in zip(results(), explicit, strict=True):
        assert_close(fused, reference)


@mechanisms
@torch.no_grad()
def test_cached_is_uncached(changes: dict[str, Any]):
    network = small.encoder_decoder(**changes)
    source = Tokens.pad(sequences(4, 7))
    memory = network.encode(source)
    for left in (False, True):
        prompt = Tokens.pad(sequences(2, 4), left=left)
        more = ids(2, 5, seed=9)
        assert prompt.valid is not None
        valid = torch.cat([prompt.valid, torch.ones(2, 5, dtype=torch.bool)], 1)
        whole = Tokens(torch.cat([prompt.ids, more], 1), valid)
        cache = network.new_cache()
        steps = [network.decode(prompt, memory, cache)]
        steps += [network.decode(Tokens(part), memory, cache) for part in more.split([1, 2, 1, 1], 1)]
        assert_close(whole.real(torch.cat(steps, 1)), whole.real(network(source, whole)))


@mechanisms
def test_gradient_reaches_every_parameter(changes: dict[str, Any]):
    network = small.encoder_decoder(**changes).train()
    logits = network(ids(2, 7), ids(2, 6, seed=1))
    logits.logsumexp(-1).square().mean().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        # Adding one vector to every key adds one number to a row of scores, which softmax ignores.
        if not name.endswith((".k.bias", ".latent.shared.bias")):
            assert parameter.grad.abs().max() > 0, name


@mechanisms
def test_every_traced_value_follows_from_its_op(changes: dict[str, Any]):
    small.assert_values_follow(small.encoder_decoder(**changes), ids(1, 7), ids(1, 6, seed=1))


@pytest.mark.parametrize("norm", small.NORMS)
@pytest.mark.parametrize("attention", [name for name in small.ATTENTION if name != "window"])
def test_without_positions_attention_is_permutation_equivariant(norm: str, attention: str):
    changes = small.NORMS[norm] | small.ATTENTION[attention]
    network = small.encoder(**changes, positions=c.NoPositions())
    tokens, order = ids(2, 7), torch.tensor([3, 0, 6, 1, 5, 2, 4])
    assert_close(network(tokens[:, order]), network(tokens)[:, order])


@pytest.mark.parametrize("positions", [name for name in small.POSITIONS if name != "none"])
def test_positions_break_the_equivariance(positions: str):
    network = small.encoder(**small.POSITIONS[positions])
    tokens, order = ids(2, 7), torch.tensor([3, 0, 6, 1, 5, 2, 4])
    assert difference(network(tokens[:, order]), network(tokens)[:, order]) > 1000


@st.composite
def stacks(draw: st.DrawFn) -> c.StackConfig:
    """Any small stack that the validators accept."""
    n_heads = draw(st.sampled_from([1, 2, 3, 4]))
    d_head = draw(st.sampled_from([2, 4, 8]))
    scaling = st.none() | st.sampled_from(
        [
            c.LinearScaling(factor=3.0),
            c.WavelengthScaling(factor=2.0, original_length=16),
            c.YarnScaling(factor=2.0, original_length=8),
        ]
    )
    positions = draw(
        st.sampled_from([*(change["positions"] for change in small.POSITIONS.values())])
        | st.builds(c.Rotary, base=st.sampled_from([10.0, 1e4, 1e6]), scaling=scaling)
    )
    if isinstance(positions, c.Rotary) and round(d_head * positions.fraction) % 2:
        d_head = 8
    n_layers, first_norm = draw(st.integers(1, 2)), draw(st.booleans())
    window = draw(st.none() | st.integers(1, 4))
    windowed = draw(st.none() | st.sampled_from([(0,), (n_layers - 1,)])) if window else None
    local = isinstance(positions, c.Rotary) and windowed and draw(st.booleans())
    return c.StackConfig(
        input=c.TokenInput(
            vocab_size=small.VOCAB,
            scale=draw(st.booleans()),
            n_types=draw(st.integers(0, 2)),
            norm=draw(st.booleans()),
        ),
        d_model=n_heads * d_head if draw(st.booleans()) else 12,
        d_head=d_head,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=draw(st.sampled_from([k for k in range(1, n_heads + 1) if n_heads % k == 0])),
        d_ff=draw(st.integers(1, 9)),
        positions=positions,
        window=window,
        window_layers=windowed,
        window_positions=c.Rotary(base=draw(st.sampled_from([10.0, 1e4]))) if local else None,
        attn_scale=draw(st.none() | st.floats(0.1, 1.0)),
        soft_cap=draw(st.none() | st.floats(0.5, 5.0)),
        qk_norm=draw(st.booleans()),
        norm=draw(st.sampled_from(["layer", "rms"])),
        norm_place=draw(st.sampled_from(["pre", "post", "sandwich"])) if first_norm else "pre",
        first_norm=first_norm,
        final_norm=draw(st.sampled_from([None, True, False])),
        activation=draw(st.sampled_from(["relu", "gelu", "gelu_tanh", "silu"])),
        gated=draw(st.booleans()),
        bias=draw(st.booleans()),
        qkv_bias=draw(st.sampled_from([None, True, False])),
        ffn_bias=draw(st.sampled_from([None, True, False])),
    )


@given(stacks(), st.booleans(), st.integers(0, 2**16))
@settings(max_examples=max(60, settings().max_examples))
def test_any_configuration(config: c.StackConfig, with_encoder: bool, seed: int):
    """In float64, where close leaves no room for luck: causality, padding, packing, cache, both kernels."""
    model = c.ModelConfig(encoder=config if with_encoder else None, decoder=config)
    network = small.shaken(Transformer(model)).double()
    source = Tokens.pad(sequences(3, 5), packed=True)
    memory = network.encode(source) if with_encoder else None

    def logits(target: Tokens) -> torch.Tensor:
        return network(source, target) if with_encoder else network(target)

    with torch.no_grad():
        batch = [ids(1, 6, seed=seed)[0].tolist(), ids(1, 4, seed=seed + 1)[0].tolist()]
        padded, packed, left = Tokens.pad(batch), Tokens.pad(batch, packed=True), Tokens.pad(batch, left=True)
        reference = logits(padded)
        own = padded.real(reference)
        assert own.isfinite().all()
        assert_close(logits(packed), own)
        assert_close(left.real(logits(left)), own)
        changed = padded.ids.clone()
        changed[:, 3:] += 1
        assert torch.equal(logits(Tokens(changed % small.VOCAB, padded.valid))[:, :3], reference[:, :3])
        cache = network.new_cache()
        assert padded.valid is not None
        steps = [
            network.decode(Tokens(i, v), memory, cache)
            for i, v in zip(padded.ids.split([2, 1, 3], 1), padded.valid.split([2, 1, 3], 1), strict=True)
        ]
        assert_close(padded.real(torch.cat(steps, 1)), own)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(attention_module, "EXPLICIT_UP_TO", 0)
            assert_close(padded.real(logits(padded)), own)
