"""Keys and values of earlier texts: a prompt that begins alike reads only the rest, and says the same."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

import pytest
import torch

from clearhead.analysis.steering import Direction
from clearhead.api import Model
from clearhead.model import Tokens, Transformer
from clearhead.model.attention import Attention
from clearhead.model.layout import Layout
from clearhead.serve import engine as engine_module
from clearhead.serve import prefill as prefill_module
from clearhead.serve.prefill import BLOCK, Prefill, Prefixes, begin
from clearhead.serve.slots import Slots
from clearhead.serve.texts import Prompt, Steering, steered
from clearhead.serve.worker import Failed
from tests.generation.networks import all_logits
from tests.serve.test_slots import FIELDS, decoder_of
from tests.serve.tiny import answers, ask, client_of, engine_of, played, still_engine, writer_model, written

CELLS = torch.arange(2.0 * 2 * 3 * 100 * 4).view(2, 2, 3, 100, 4)
BYTES = CELLS[..., :BLOCK, :].nbytes
MUCH = 1_000_000


def ids_of(n: int, *, first: int = 0) -> list[int]:
    return [5 + (first + i * 7) % 80 for i in range(n)]


# --- what is kept ---------------------------------------------------------------------------------------------------


def test_whole_blocks_are_found_and_one_token_is_left():
    prefixes, ids = Prefixes(MUCH), ids_of(3 * BLOCK + 5)
    prefixes.keep((), ids, CELLS)
    for n, expected in ((3 * BLOCK + 5, 3), (3 * BLOCK + 1, 3), (3 * BLOCK, 2), (BLOCK, 0), (1, 0)):
        found = prefixes.match((), ids[:n])
        assert len(found) == expected
        for i, block in enumerate(found):
            assert block.cells is not None
            assert torch.equal(block.cells, CELLS[..., i * BLOCK : (i + 1) * BLOCK, :])
    assert len(prefixes.match((), [*ids[: 2 * BLOCK], *ids_of(BLOCK, first=3), 1])) == 2
    assert prefixes.match("edited", ids) == []
    before = prefixes.n_bytes
    prefixes.keep((), ids, CELLS)
    assert prefixes.n_bytes == before == 3 * BYTES


def test_the_least_recently_used_goes_first_and_ends_go_before_beginnings():
    prefixes = Prefixes(4 * BYTES)
    one, two, three = ([i, *ids_of(3 * BLOCK)] for i in range(3))
    prefixes.keep((), one[: 2 * BLOCK], CELLS)
    prefixes.keep((), two[: 2 * BLOCK], CELLS)
    assert len(prefixes.match((), one)) == 2
    prefixes.keep((), three[:BLOCK], CELLS)
    assert [len(prefixes.match((), ids)) for ids in (two, one, three)] == [1, 2, 1]
    prefixes.keep((), [9, *ids_of(9 * BLOCK)], CELLS[..., :1, :].expand(-1, -1, -1, 9 * BLOCK, -1))
    assert prefixes.n_bytes == 4 * BYTES, "the beginning of a text that does not fit is kept"
    assert [len(prefixes.match((), ids)) for ids in (one, two, three, [9, *ids_of(9 * BLOCK)])] == [0, 0, 0, 4]
    prefixes.clear()
    assert (prefixes.n_bytes, prefixes.match((), one)) == (0, [])
    nothing = Prefixes(0)
    nothing.keep((), one, CELLS)
    assert nothing.match((), one) == []


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
def test_what_follows_a_known_beginning_is_as_without(fields: dict[str, Any]):
    net = decoder_of(**fields)
    ids = [i % 7 for i in range(36)]
    assert net.decoder is not None
    widths = net.decoder.config.head_width, net.decoder.config.value_width
    prefixes = Prefixes(MUCH)
    with torch.inference_mode():
        past = net.new_cache()
        net.decoder(Tokens.pad([ids]), None, past)
        slots = Slots(2, most_rows=1, most_cells=40)
        slots.join(past, [0], [36])
        assert slots.cells is not None
        prefixes.keep((), ids, slots.cells[:, :, 0])
        texts = [[*ids[:32], 3, 2, 1], [*ids[:32], 4], [*ids[:33], 0, 1]]
        past = net.new_cache()
        begin(past, prefixes.match((), texts[0]), 3, widths)
        states, layout = net.decoder(Tokens.pad([text[32:] for text in texts]), None, past)
        logits = net.head(states, layout)
    for row, text in zip(logits, texts, strict=True):
        torch.testing.assert_close(row[: len(text) - 32], all_logits(net, text, None)[32:], rtol=1e-9, atol=1e-9)


# --- in the engine --------------------------------------------------------------------------------------------------


@contextmanager
def counted() -> Iterator[list[int]]:
    """The tokens of each pass meanwhile, of prompts or of running texts."""
    seen = list[int]()

    def count(network: Transformer, steering: Any, tokens: Tokens) -> AbstractContextManager[None]:
        seen.append(tokens.ids.numel() if tokens.valid is None else int(tokens.valid.sum()))
        return steered(network, steering, tokens)

    # Not by a hook: with one, nothing is skipped.
    with mock.patch.object(engine_module, "steered", count), mock.patch.object(prefill_module, "steered", count):
        yield seen


def told(model: Model, prompts: Sequence[Prompt], prefix_bytes: int) -> tuple[list[list[int]], list[int], list[int]]:
    """Of prompts one after another: the tokens of their texts, how many were known, and the tokens of all passes."""
    engine = still_engine(model, prefix_bytes=prefix_bytes)
    with counted() as passes:
        found = [played(engine, [[prompt]])[0][0] for prompt in prompts]
    return [written(updates) for updates in found], [updates[-1].n_known for updates in found], passes


@pytest.fixture
def model() -> Model:
    return writer_model()


def test_a_second_request_reads_only_its_new_tokens(model: Model):
    ids = ids_of(40)
    prompts = [ask(model, one, limit=1) for one in (ids, ids, [*ids, 9, 8, 7], [9, *ids])]
    plain, no_hits, every_token = told(model, prompts, 0)
    kept, hits, tokens = told(model, prompts, MUCH)
    assert kept == plain
    assert (no_hits, every_token) == ([0] * 4, [40, 40, 43, 41])
    assert (hits, tokens) == ([0, 32, 32, 0], [40, 8, 11, 41])


def _combine(self: Attention, z: torch.Tensor, at: Layout) -> torch.Tensor:
    return COMBINE(self, -z, at)


COMBINE = Attention.combine
CHANGES: dict[str, Callable[[Model, pytest.MonkeyPatch], object]] = {
    "data": lambda model, _: model.network.get_parameter("decoder.blocks.0.attn.q.weight").data.neg_(),
    "weight": lambda model, _: setattr(
        (q := model.network.get_submodule("decoder.blocks.0.attn.q")),
        "weight",
        torch.nn.Parameter(-q.get_parameter("weight").detach()),
    ),
    "class": lambda _, patch: patch.setattr(Attention, "combine", _combine),
    "hook": lambda model, _: model.network.last_stack.blocks[0].register_forward_hook(lambda _, __, out: -out),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_network_computed_before_it_changed_is_not_used(change: str, model: Model, monkeypatch):
    engine, prompts = still_engine(model, prefix_bytes=MUCH), [[ask(model, ids_of(40))]]
    before = played(engine, prompts)
    CHANGES[change](model, monkeypatch)
    after, fresh = played(engine, prompts)[0], played(still_engine(model), prompts)[0]
    assert written(after[0]) == written(fresh[0]) != written(before[0][0])
    assert after[0][-1].n_known == 0


def test_the_next_turn_of_a_conversation_reads_only_what_is_new(model: Model):
    first = ask(model, ids_of(24), min_new_tokens=12)
    (said,), _, _ = told(model, [first], 0)
    prompts = [first, ask(model, [*first.ids, *said, 6, 7], limit=9, temperature=1.0, seed=3)]
    plain, _, _ = told(model, prompts, 0)
    kept, hits, passes = told(model, prompts, MUCH)
    assert kept == plain
    assert hits == [0, 32]
    assert passes[12] == 24 + 12 + 2 - 32, "after one pass for the first prompt and 11 steps"


def test_requests_that_begin_alike_are_read_together(model: Model):
    begins = ask(model, ids_of(33), limit=1)
    texts = [[*begins.ids, 20 + i, *range(30, 30 + i)] for i in range(4)]
    prompts = [ask(model, ids, limit=6, temperature=1.0, seed=i) for i, ids in enumerate(texts)]
    plain = still_engine(model)
    expected = [written(found[0]) for found in played(plain, [[prompt] for prompt in prompts])]
    engine = still_engine(model, prefix_bytes=MUCH)
    played(engine, [[begins]])
    with counted() as passes:
        found = played(engine, [[prompt] for prompt in prompts])
    assert [written(one[0]) for one in found] == expected
    assert passes[0] == sum(len(ids) - 32 for ids in texts)


def test_many_requests_that_share_beginnings_are_as_without(model: Model):
    draw = random.Random(3)
    texts = [[*ids_of(draw.randint(1, 50), first=draw.randrange(3)), draw.randrange(5, 80)] for _ in range(40)]
    prompts = [ask(model, ids, limit=draw.randint(1, 12), temperature=1.0, seed=1) for ids in texts]
    found: list[list[tuple[list[int], int]]] = []
    for prefix_bytes in (0, 100_000, MUCH):
        with engine_of(model, prefix_bytes=prefix_bytes) as engine:
            told = answers(engine, [[prompt] for prompt in prompts])
        found.append([(written(one[0]), one[0][-1].n_known) for one in told])
    tokens = [[own for own, _ in one] for one in found]
    assert tokens[0] == tokens[1] == tokens[2]
    hits = [sum(n for _, n in one) for one in found]
    assert hits[0] == 0
    assert min(hits[1:]) > 100


def test_texts_under_edits_share_with_no_others(model: Model):
    direction = Direction(
        "decoder.blocks.0.resid_post", 3 * torch.randn(16, generator=torch.Generator().manual_seed(2))
    )
    ids = ids_of(40)
    strengths = [0.0, 4.0, 4.0, 2.0, 0.0]
    prompts = [ask(model, ids, steering=(Steering(direction, one),) if one else ()) for one in strengths]
    plain, _, _ = told(model, prompts, 0)
    kept, hits, _ = told(model, prompts, MUCH)
    assert kept == plain
    assert plain[0] != plain[1]
    assert hits == [0, 0, 32, 0, 32]


def test_a_prompt_whose_tokens_are_scored_is_read_whole(model: Model):
    prompt = ask(model, ids_of(40), likeliest=1, scores_prompt=True)
    engine = still_engine(model, prefix_bytes=MUCH)
    once, again = (played(engine, [[prompt]])[0][0][0] for _ in range(2))
    assert once == again
    assert len(again.prompt) == 40


def test_the_memory_is_bounded_and_given_back_when_it_runs_out(model: Model, monkeypatch):
    engine = still_engine(model, prefix_bytes=(most := 40_000))
    for i in range(6):
        played(engine, [[ask(model, ids_of(40, first=i), limit=3)]])
        assert 0 < engine.prefixes.n_bytes <= most
    with monkeypatch.context() as patch:
        patch.setattr(Prefixes, "keep", lambda *_: (_ for _ in ()).throw(MemoryError()))
        ((found,),) = (one.values() for one in played(engine, [[ask(model, ids_of(40), limit=3)]]))
        assert found[0].n_written == 3
        assert engine.prefixes.n_bytes == 0
    played(engine, [[ask(model, ids_of(40), limit=3)]])
    assert engine.prefixes.n_bytes > 0
    with monkeypatch.context() as patch:
        patch.setattr(Prefill, "read", lambda *_: (_ for _ in ()).throw(MemoryError()))
        with pytest.raises(Failed, match="out of memory"):
            played(engine, [[ask(model, ids_of(40))]])
    assert engine.prefixes.n_bytes == 0


def test_numbers_that_are_not_finite_are_not_kept(model: Model):
    model.network.last_stack.table.weight.data[9] = torch.nan
    engine = still_engine(model, prefix_bytes=MUCH)
    with pytest.raises(Failed, match="not finite"):
        played(engine, [[ask(model, [9] * 40)]])
    assert engine.prefixes.n_bytes == 0


def test_an_answer_says_how_many_tokens_were_known(model: Model):
    asked = {"prompt": [ids_of(40), ids_of(30, first=3)], "max_tokens": 2}
    with client_of(model, prefix_cache=1) as client:
        first, again = (client.post("/v1/completions", json=asked).json()["usage"] for _ in range(2))
    assert first["prompt_tokens_details"] == {"cached_tokens": 0}
    assert again["prompt_tokens_details"] == {"cached_tokens": 32 + 16}
    assert (again["prompt_tokens"], again["completion_tokens"]) == (70, 4)
