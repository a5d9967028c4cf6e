"""Rows of unequal length in one batch say what each says alone."""

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Tokens, Transformer
from clearhead.serve.slots import LEAST_ROOM, Slots
from tests.generation.networks import V, all_logits, network

POSITIONS: dict[str, c.Positions] = {
    "sinusoidal": c.Sinusoidal(),
    "learned": c.Learned(max_length=40),
    "rotary": c.Rotary(),
    "relative": c.RelativeBias(n_buckets=8, max_distance=16),
    "alibi": c.ALiBi(),
    "none": c.NoPositions(),
}
LATENT = {"d_head": 6, "latent": c.Latent(rank=5, d_shared=4, d_value=3)}
STACKS = {"grouped": {"n_kv_heads": 1}, "window": {"window": 4}, "soft cap": {"soft_cap": 5.0}, "latent": LATENT}


FIELDS: dict[str, dict[str, Any]] = {name: {"positions": one} for name, one in POSITIONS.items()} | STACKS


def decoder_of(**fields: Any) -> Transformer:
    decoder = network().config.decoder
    assert decoder is not None
    stack = c.StackConfig.model_validate({**dict(decoder), **fields})
    torch.manual_seed(1)
    return Transformer(c.ModelConfig(decoder=stack, head=c.LanguageHead(tied=False))).double().eval()


def join(net: Transformer, slots: Slots, texts: list[list[int]]) -> Tensor:
    """Read some texts into slots -> n v: the logits after each."""
    assert net.decoder is not None
    past = net.new_cache()
    states, layout = net.decoder(Tokens.pad(texts, packed=True), None, past)
    lengths = [len(text) for text in texts]
    slots.join(past, range(len(texts)), lengths)
    states = states if states.dim() == 2 else states.flatten(0, 1)
    return net.head(states[torch.tensor(lengths).cumsum(0) - 1], layout)


def check(net: Transformer, logits: Tensor, texts: list[list[int]]) -> None:
    for row, text in zip(logits, texts, strict=True):
        torch.testing.assert_close(row, all_logits(net, text, None)[-1], rtol=1e-9, atol=1e-9)


def play(net: Transformer, *, seed: int = 0, n_steps: int = 25) -> None:
    """Texts that come and go at random, and every step of them."""
    draw = random.Random(seed)

    def text(n: int) -> list[int]:
        return [draw.randrange(V) for _ in range(n)]

    slots, running = Slots(2, most_rows=5, most_cells=40), list[list[int]]()
    for _ in range(n_steps):
        if len(running) < 5 and draw.random() < 0.5:
            new = [text(draw.randint(1, 9)) for _ in range(draw.randint(1, 5 - len(running)))]
            check(net, join(net, slots, new), new)
            running += new
        if running and (draw.random() < 0.3 or max(map(len, running)) >= 38):
            row = draw.randrange(len(running))
            if max(map(len, running)) >= 38:
                row = max(range(len(running)), key=lambda i: len(running[i]))
            slots.leave(row)
            running[row] = running[-1]
            running.pop()
        if running:
            running = [[*one, draw.randrange(V)] for one in running]
            check(net, net.decode(Tokens(torch.tensor([[one[-1]] for one in running])), None, slots)[:, -1], running)
        assert slots.lengths == [len(one) for one in running]


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
def test_texts_that_come_and_go(fields: dict[str, Any]):
    with torch.inference_mode():
        play(decoder_of(**fields))


def test_room_is_made_as_texts_need_it_and_given_back():
    net = network(positions=c.Rotary()).eval()
    slots = Slots(2, most_rows=8, most_cells=10 * LEAST_ROOM)
    with torch.inference_mode():
        join(net, slots, [[1, 2, 3]])
        assert slots.cells is not None
        assert slots.cells.shape[2:5:2] == (1, LEAST_ROOM)
        join(net, slots, [[1], [2]])
        assert slots.cells.shape[2:5:2] == (4, LEAST_ROOM)
        join(net, slots, [[1] * (5 * LEAST_ROOM)])
        assert slots.cells.shape[2:5:2] == (4, 8 * LEAST_ROOM)
        for _ in range(4):
            slots.leave(0)
    assert slots.cells is None


def test_a_step_copies_no_cells():
    net = network(positions=c.Rotary()).eval()
    slots = Slots(2, most_rows=2, most_cells=LEAST_ROOM)
    with torch.inference_mode():
        join(net, slots, [[1, 2, 3], [4]])
        assert slots.cells is not None
        place = slots.cells.data_ptr()
        for _ in range(5):
            net.decode(Tokens(torch.tensor([[1], [2]])), None, slots)
            assert slots.cells.data_ptr() == place
        k, _ = slots.blocks[0].attn.append(*torch.zeros(2, 2, 2, 1, 8).double())
        assert k.data_ptr() == place


def test_numbers_that_are_not_finite_are_forgotten():
    net = network(positions=c.Rotary()).eval()
    slots = Slots(2, most_rows=2, most_cells=40)
    with torch.inference_mode():
        join(net, slots, [[1, 2, 3], [4]])
        assert slots.cells is not None
        slots.cells[:, :, 1, :, :9] = torch.nan
        slots.forget(1)
        slots.leave(1)
        join(net, slots, [[5]])
        check(net, net.decode(Tokens(torch.tensor([[7], [8]])), None, slots)[:, -1], [[1, 2, 3, 7], [5, 8]])


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
def test_a_row_alone_reads_several_tokens(fields: dict[str, Any]):
    net, text = decoder_of(**fields), [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
    slots = Slots(2, most_rows=2, most_cells=40)
    with torch.inference_mode():
        join(net, slots, [text[:3], [7]])
        slots.leave(1)
        expected = all_logits(net, text, None)
        for wrong in ([0, 8], []):
            found = net.decode(Tokens(torch.tensor([[*text[3:8], *wrong]])), None, slots)[0]
            torch.testing.assert_close(found[:5], expected[3:8], rtol=1e-9, atol=1e-9)
            slots.lengths[0] = 3
        slots.lengths[0] = 8
        join(net, slots, [[7, 5]])
        check(net, net.decode(Tokens(torch.tensor([[text[8]], [2]])), None, slots)[:, -1], [text[:9], [7, 5, 2]])
