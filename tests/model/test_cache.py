"""A cache's rows can be chosen again, and a cached step costs one position."""

from contextlib import nullcontext

import pytest
import torch

from clearhead import config as c
from clearhead.model import Tokens
from clearhead.model.cache import FixedCache, GrowingCache, GrowingKeyValues
from clearhead.trace import trace
from tests.model import small
from tests.model.small import assert_close, ids, sequences, visits


@torch.no_grad()
def test_select_follows_the_rows():
    network = small.encoder_decoder()
    memory = network.encode(Tokens.pad(sequences(4, 6, 2)))
    prompt, more, order = (
        Tokens.pad(sequences(2, 3, 1), left=True),
        ids(3, 2, seed=5),
        torch.tensor([2, 0, 2]),
    )
    layout = memory[1]
    assert layout.valid is not None
    chosen_memory = network.encode(Tokens(Tokens.pad(sequences(4, 6, 2)).ids[order], layout.valid[order]))
    cache, reference = network.new_cache(), network.new_cache()
    network.decode(prompt, memory, cache)
    cache.select(order)
    assert prompt.valid is not None
    network.decode(Tokens(prompt.ids[order], prompt.valid[order]), chosen_memory, reference)
    assert_close(
        network.decode(Tokens(more), chosen_memory, cache),
        network.decode(Tokens(more), chosen_memory, reference),
    )


@torch.no_grad()
def test_a_step_computes_one_position_and_the_memory_once():
    network = small.encoder_decoder()
    memory, cache = network.encode(Tokens(ids(1, 6))), network.new_cache()
    with trace(network) as t:
        for _ in range(4):
            network.decode(Tokens(ids(1, 1)), memory, cache)
    assert [tuple(v.shape) for v in visits(t, "decoder.blocks.1.attn.q")] == [(1, 4, 1, 4)] * 4
    assert [v.shape[2] for v in visits(t, "decoder.blocks.1.attn.k")] == [1, 2, 3, 4]
    keys = visits(t, "decoder.blocks.1.cross.k")
    assert all(torch.equal(k, keys[0]) for k in keys)
    assert cache.length == 4


@torch.no_grad()
def test_appending_writes_into_room_and_keeps_what_was_seen():
    seen, cells = [], set[int]()
    cache, given = GrowingKeyValues(), torch.randn(2, 3, 100, 4)
    for i in range(100):
        k, v = cache.append(given[:, :, i : i + 1], -given[:, :, i : i + 1])
        seen.append(k)
        cells.add(k.data_ptr())
        assert torch.equal(k, given[:, :, : i + 1])
        assert torch.equal(v, -k)
    assert len(cells) == 4, "the first, and room for 32, 64 and 128"
    assert all(torch.equal(k, given[:, :, : i + 1]) for i, k in enumerate(seen))


def test_gradients_go_through_what_was_appended():
    cache, parts = GrowingKeyValues(), [torch.randn(1, 1, 1, 2, requires_grad=True) for _ in range(4)]
    total = torch.zeros(())
    for part in parts:
        k, _ = cache.append(part, part)
        total = total + k.square().sum()
    total.backward()
    assert all(torch.equal(p.grad, 2 * (4 - i) * p) for i, p in enumerate(parts) if p.grad is not None)
    assert all(part.grad is not None for part in parts)


@torch.no_grad()
@pytest.mark.parametrize("looking", [False, True])
def test_moving_some_rows_is_selecting_them_all(looking: bool):
    network, order = small.decoder(), torch.tensor([1, 1, 0, 3])
    moved, selected = network.new_cache(), network.new_cache()
    for cache in (moved, selected):
        for i in range(3):
            network.decode(Tokens(ids(4, 1, seed=i)), None, cache)
    before = moved.blocks[0].attn.k
    assert before is not None
    copy = before.clone()
    with trace(network) if looking else nullcontext():
        for block in moved.blocks:
            block.attn.move(torch.tensor([0, 2]), order[[0, 2]])
    selected.select(order)
    for one, other in zip(moved.blocks, selected.blocks, strict=True):
        assert one.attn.k is not None
        assert other.attn.k is not None
        assert torch.equal(one.attn.k, other.attn.k)
    assert torch.equal(before, copy) == looking, "a trace keeps what it saw"


FIXED = {name: small.PAIRS[name] for name in [*small.PAIRS][::7]} | small.LAYERS


@torch.no_grad()
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", [*FIXED, *small.MIXERS])
def test_fixed_cells_change_nothing(name: str, padded: bool):
    network = small.decoder(**(FIXED | small.MIXERS)[name])
    prompt = Tokens.pad(sequences(5, 2, 3) if padded else sequences(4, 4), left=True)
    growing = network.new_cache()
    network.decode(prompt, None, growing)
    fixed = FixedCache.of(growing, 12)
    for i in range(6):
        token = Tokens(ids(len(prompt.ids), 1, seed=i))
        assert_close(network.decode(token, None, fixed), network.decode(token, None, growing))


@torch.inference_mode()
@pytest.mark.parametrize("cross", [pytest.param(False, marks=pytest.mark.slow), True])
def test_one_graph_serves_every_step(cross: bool):
    network = small.encoder_decoder() if cross else small.decoder(positions=c.Rotary(), n_kv_heads=2)
    memory = network.encode(Tokens.pad(sequences(3, 5))) if cross else None
    growing = network.new_cache()
    network.decode(Tokens.pad(sequences(2, 3), left=True), memory, growing)
    fixed = FixedCache.of(growing, 40)
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    step = torch.compile(network.decode, fullgraph=True, dynamic=False, backend=counter)
    for i in range(35):
        token = Tokens(ids(2, 1, seed=i))
        assert_close(step(token, memory, fixed), network.decode(token, memory, growing))
    torch._dynamo.reset()
    assert counter.frame_count == 1


@torch.no_grad()
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", FIXED)
def test_what_is_cut_was_never_read(name: str, padded: bool):
    network = small.decoder(**FIXED[name])
    prompt = Tokens.pad(sequences(5, 2, 3) if padded else sequences(4, 4), left=True)
    b = len(prompt.ids)
    cut, reference = network.new_cache(), network.new_cache()
    for cache in (cut, reference):
        network.decode(prompt, None, cache)
        network.decode(Tokens(ids(b, 1, seed=8)), None, cache)
    for seed in range(3):
        length = cut.length
        network.decode(Tokens(ids(b, 4, seed=20 + seed)), None, cut)
        assert isinstance(cut, GrowingCache)
        cut.cut(length)
        more = Tokens(ids(b, 2, seed=seed))
        assert torch.equal(network.decode(more, None, cut), network.decode(more, None, reference))
    for one, other in zip(cut.blocks, reference.blocks, strict=True):
        assert one.attn.k is not None
        assert other.attn.k is not None
        assert torch.equal(one.attn.k, other.attn.k)
