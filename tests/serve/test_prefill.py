"""Short prompts come between the blocks of a long one, and nobody waits for ever."""

import asyncio

import pytest
import torch
from torch import nn

from clearhead.analysis.steering import Direction
from clearhead.api import Model
from clearhead.serve import prefill as prefill_module
from clearhead.serve.engine import Engine
from clearhead.serve.prefill import Prefill
from clearhead.serve.texts import Prompt, Steering, Update
from clearhead.serve.worker import Failed, Ticket
from tests.serve.tiny import ask, played, run, still_engine, writer_model, written

LONG = [5 + i % 80 for i in range(50)]


@pytest.fixture
def model() -> Model:
    return writer_model(n_layers=3)


def steering() -> tuple[Steering, ...]:
    vector = 3 * torch.randn(16, generator=torch.Generator().manual_seed(2))
    return (Steering(Direction("decoder.blocks.1.resid_post", vector), 2.0),)


def interrupted(
    engine: Engine, long: Prompt, other: Prompt, *, block: int = 1
) -> tuple[list[list[Prompt]], *tuple[list[Update | Failed], ...]]:
    """The other prompt comes when this block reads the long one -> the prompts in the order in which they had their
    first token, and the news of the long one and of the other."""
    begun: list[list[Prompt]] = []

    async def play() -> list[list[Update | Failed]]:
        first: Ticket[Update] = Ticket()
        second: Ticket[Update] = Ticket()
        begin = engine.begin

        def watched(read: Prefill, logits: torch.Tensor) -> None:
            begun.append(read.prompts)
            begin(read, logits)

        def comes(*_: object) -> None:
            handle.remove()
            engine.submit(second, [other])

        engine.begin = watched  # type: ignore[method-assign]
        handle = engine.network.last_stack.blocks[block].register_forward_pre_hook(comes)
        engine.submit(first, [long])
        with torch.inference_mode():
            while engine.waiting or engine.under_way:
                engine.turn()
                engine.post()
        await asyncio.sleep(0)
        return [[ticket.updates.get_nowait() for _ in range(ticket.updates.qsize())] for ticket in (first, second)]

    return begun, *run(play())


def tokens(told: list[Update | Failed]) -> list[int]:
    return written([update for update in told if isinstance(update, Update)])


@pytest.mark.parametrize(
    ("block", "steers"), [(0, "both"), (1, "neither"), (1, "long"), (1, "short"), (1, "both"), (2, "both")]
)
def test_a_short_prompt_has_its_first_token_before_a_long_one_that_is_being_read(model: Model, block: int, steers: str):
    long = ask(model, LONG, streams=True, steering=steering() if steers in ("long", "both") else ())
    short = ask(model, [9, 8, 7], streams=True, steering=steering() if steers in ("short", "both") else ())
    alone = [written(played(still_engine(model), [[prompt]])[0][0]) for prompt in (long, short)]
    begun, *told = interrupted(still_engine(model), long, short, block=block)
    assert begun == [[short], [long]]
    assert [*map(tokens, told)] == alone


def test_a_prompt_that_is_hardly_shorter_waits(model: Model):
    long, other = ask(model, LONG, limit=1), ask(model, LONG[:20], limit=1)
    begun, _, _ = interrupted(still_engine(model), long, other)
    assert begun == [[long], [other]]


def test_a_short_prompt_that_fails_leaves_the_long_one_alone(model: Model, monkeypatch):
    long, short, read = ask(model, LONG), ask(model, [9, 8, 7]), Prefill.read

    def fails(self: Prefill, *given: object) -> object:
        if short in self.prompts:
            raise ZeroDivisionError("a bug")
        return read(self, *given)  # type: ignore[arg-type]

    alone = written(played(still_engine(model), [[long]])[0][0])
    monkeypatch.setattr(Prefill, "read", fails)
    _, first, (failure,) = interrupted(still_engine(model), long, short)
    assert tokens(first) == alone
    assert isinstance(failure, Failed)
    assert failure.status == 500


def test_a_long_prompt_is_read_however_many_short_ones_come(model: Model, monkeypatch):
    monkeypatch.setattr(prefill_module, "PIECE", 8)
    engine = still_engine(model)

    async def play() -> int:
        long: Ticket[Update] = Ticket()
        engine.submit(long, [ask(model, LONG, limit=1)])
        for n_turns in range(30):
            engine.submit(Ticket(), [ask(model, [9, 8], limit=1)])
            with torch.inference_mode():
                engine.turn()
            engine.post()
            await asyncio.sleep(0)
            if not long.updates.empty():
                return n_turns
        raise AssertionError("the long prompt starves")

    assert run(play()) <= 2 * -(-len(LONG) // 8)


def test_the_network_is_as_before(model: Model):
    engine = still_engine(model)
    played(engine, [[ask(model, LONG, limit=2)]])
    assert not any(module._forward_pre_hooks for module in engine.network.modules() if isinstance(module, nn.Module))
