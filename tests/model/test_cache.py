"""A cache's rows can be chosen again, and a cached step costs one position."""

import torch

from clearhead.model import Tokens
from clearhead.trace import trace
from tests.model import small
from tests.model.small import assert_close, ids, sequences


@torch.no_grad()
def test_select_follows_the_rows() -> None:
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
def test_a_step_computes_one_position_and_the_memory_once() -> None:
    network = small.encoder_decoder()
    memory, cache = network.encode(Tokens(ids(1, 6))), network.new_cache()
    with trace(network) as t:
        for _ in range(4):
            network.decode(Tokens(ids(1, 1)), memory, cache)
    assert [tuple(v.shape) for v in t.visits("decoder.blocks.1.attn.q")] == [(1, 4, 1, 4)] * 4
    assert [v.shape[2] for v in t.visits("decoder.blocks.1.attn.k")] == [1, 2, 3, 4]
    keys = t.visits("decoder.blocks.1.cross.k")
    assert all(torch.equal(k, keys[0]) for k in keys)
    assert cache.length == 4
