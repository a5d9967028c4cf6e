"""Many requests at once: each has the text it would have alone, and none lives at another's cost."""

import asyncio
import random
import threading
from typing import Any

import pytest
import torch

from clearhead.api import Model
from clearhead.errors import UserError
from clearhead.generation import complete
from clearhead.serve import prefill as prefill_module
from clearhead.serve.engine import Engine
from clearhead.serve.prefill import AT_ONCE, Prefill
from clearhead.serve.texts import Prompt, Update
from clearhead.serve.worker import Failed, Ticket
from tests.serve.tiny import answer, answers, ask, engine_of, failed, run, texts_of, writer_model, written


@pytest.fixture(scope="module")
def model() -> Model:
    return writer_model()


def prompts_of(model: Model, n: int, *, longest: int = 20) -> list[list[int]]:
    draw = random.Random(5)
    return [[draw.randrange(4, model.tokenizer.vocab_size) for _ in range(draw.randint(1, longest))] for _ in range(n)]


def alone(model: Model, prompt: Prompt) -> list[list[int]]:
    """The tokens of one prompt's texts by the library's own call."""
    config = prompt.config.model_copy(update={"max_new_tokens": prompt.limit, "n_best": prompt.n})
    return [list(hypothesis.tokens) for hypothesis in complete(model.network, [prompt.ids], config=config)[0]]


SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 1.0, "seed": 7},
    "narrowed": {"temperature": 1.5, "top_k": 20, "top_p": 0.9, "seed": 8},
    "controlled": {"repetition_penalty": 2.0, "no_repeat_ngram": 2},
}


STATE = {"kind": "short_convolution", "layers": [0]}


@pytest.mark.parametrize(
    ("stacks", "is_deterministic"), [({}, False), ({"mixer": STATE}, False), ({"mixer": STATE}, True)]
)
def test_32_requests_at_once_are_as_each_alone(stacks: dict[str, Any], is_deterministic: bool):
    """With four kinds of settings in one batch."""
    model = writer_model(**({"n_layers": 2} | stacks if stacks else {}))
    draw, kinds = random.Random(1), [*SETTINGS.values()]
    ids = prompts_of(model, 32)
    prompts = [ask(model, one, limit=draw.randint(1, 20), **kinds[i % 4]) for i, one in enumerate(ids)]
    expected = [alone(model, prompt) for prompt in prompts]
    for slots in (5,) if stacks else (3, 16):
        with engine_of(model, slots=slots, prefix_bytes=9999, is_deterministic=is_deterministic) as engine:
            found = answers(engine, [[prompt] for prompt in prompts])
            assert not engine.slots.lengths, "nothing is held for texts that have ended"
        for prompt, tokens_alone, texts in zip(prompts, expected, found, strict=True):
            (update,) = texts[0]
            tokens = written(texts[0])
            assert [tokens] == tokens_alone
            assert update.text == texts_of(model.tokenizer, prompt.ids, tokens)
            assert update.reason == ("length" if len(tokens) == prompt.limit else "stop")
            assert update.n_written == len(tokens) + (update.reason == "stop")
            assert not {*prompt.config.end_ids} & set(tokens)


def test_several_prompts_of_one_request_are_numbered(model: Model):
    ids = prompts_of(model, 3)
    prompts = [ask(model, one, temperature=1.0, seed=2, n=2, number=i) for i, one in enumerate(ids)]
    with engine_of(model, slots=4) as engine:
        (found,) = answers(engine, [prompts])
    assert sorted(found) == list(range(6))
    config = prompts[0].config.model_copy(update={"max_new_tokens": 12, "n_best": 2})
    batch = complete(model.network, ids, config=config)
    for i, hypotheses in enumerate(batch):
        mine = sorted(written(found[2 * i + sample]) for sample in range(2))
        assert mine == sorted(list(h.tokens) for h in hypotheses)


def test_log_probabilities(model: Model):
    ids = prompts_of(model, 3)[2]
    with engine_of(model) as engine:
        plain, scored = answers(engine, [[ask(model, ids)], [ask(model, ids, likeliest=2, scores_prompt=True)]])
    assert written(plain[0]) == written(scored[0])
    tokens = written(scored[0])
    with torch.no_grad():
        expected = model.network(torch.tensor([[*ids, *tokens]]))[0].float().log_softmax(-1)
    (update,) = scored[0]
    assert [token.id for token in update.prompt] == ids
    assert update.prompt[0].log_prob is None
    for i, token in enumerate([*update.prompt[1:], *update.tokens]):
        assert token.log_prob == pytest.approx(float(expected[i, token.id]), abs=1e-5)
        best = expected[i].topk(2)
        assert [other for other, _ in token.likeliest] == best.indices.tolist()
    assert [token.offset for token in update.tokens][:2] == [0, len(texts_of(model.tokenizer, ids, tokens[:1]))]


def test_prompts_are_read_together_up_to_a_limit(model: Model):
    with engine_of(model, slots=4) as engine:
        short, long = ask(model, [1] * 8), ask(model, [1] * (AT_ONCE // 2))
        assert engine.fits([], ask(model, [1] * (2 * AT_ONCE)))
        assert engine.fits([short] * 3, short)
        assert not engine.fits([short] * 4, short)
        assert engine.fits([long], short)
        assert not engine.fits([long, short], short)


# --- a long prompt --------------------------------------------------------------------------------------------------


@pytest.fixture
def pieces_of_eight(monkeypatch) -> None:
    monkeypatch.setattr(prefill_module, "PIECE", 8)


@pytest.mark.usefixtures("pieces_of_eight")
@pytest.mark.parametrize("length", [7, 8, 9, 16, 50])
def test_a_prompt_in_pieces_is_the_prompt(model: Model, length: int):
    ids = [4 + i % 90 for i in range(length)]
    plain = [ask(model, ids), ask(model, ids, temperature=1.0, seed=1, n=2)]
    scored = ask(model, ids, likeliest=2, scores_prompt=True)
    with engine_of(model) as engine:
        found = answers(engine, [[prompt] for prompt in [*plain, scored]])
        assert not engine.reading
        assert not engine.slots.lengths
    for prompt, texts in zip(plain, found, strict=False):
        assert sorted(written(texts[i]) for i in texts) == sorted(alone(model, prompt))
    with torch.no_grad():
        expected = model.network(torch.tensor([ids]))[0].log_softmax(-1)
    tokens = found[2][0][0].prompt
    assert [token.id for token in tokens] == ids
    assert tokens[0].log_prob is None
    for i, token in enumerate(tokens[1:]):
        assert token.log_prob == pytest.approx(float(expected[i, token.id]), abs=1e-5)


def reads_slowly(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Of each piece that is read: the tokens read before, and those that running texts had."""
    seen, read = list[tuple[int, int]](), engine.read

    def watched(reading: Prefill) -> None:
        seen.append((reading.past.length, sum(len(row.written) for row in engine.rows)))
        read(reading)

    monkeypatch.setattr(engine, "read", watched)
    return seen


Going = tuple[threading.Event, "asyncio.Task[Any]", list[tuple[int, int]]]


async def a_text_under_way(engine: Engine, model: Model, monkeypatch: pytest.MonkeyPatch) -> Going:
    """What lets it go on, its answer, and what `reads_slowly` sees from now on."""
    going = held(engine, monkeypatch)
    first = asyncio.create_task(answer(engine, [ask(model, [5, 6], limit=20, min_new_tokens=12)]))
    await begun(engine)
    return going, first, reads_slowly(engine, monkeypatch)


@pytest.mark.usefixtures("pieces_of_eight")
def test_running_texts_go_on_between_the_pieces(model: Model, monkeypatch):
    async def play(engine: Engine) -> None:
        going, first, seen = await a_text_under_way(engine, model, monkeypatch)
        long = asyncio.create_task(answer(engine, [ask(model, [7] * 30, limit=2)]))
        await asyncio.sleep(0)
        going.set()
        await first
        await long
        assert [length for length, _ in seen] == [0, 8, 16, 24]
        n_written = [n for _, n in seen]
        assert n_written == [*range(n_written[0], n_written[0] + 4)], "a token between two pieces"

    with engine_of(model) as engine:
        run(play(engine))


@pytest.mark.usefixtures("pieces_of_eight")
def test_who_hangs_up_while_being_read_is_read_no_further(model: Model, monkeypatch):
    async def play(engine: Engine) -> None:
        going, first, seen = await a_text_under_way(engine, model, monkeypatch)
        gone: Ticket[Update] = Ticket()
        engine.submit(gone, [ask(model, [7] * 60, limit=2)])
        step = engine.step

        def hung_up() -> torch.Tensor:
            gone.is_gone = gone.is_gone or len(seen) == 2
            return step()

        monkeypatch.setattr(engine, "step", hung_up)
        going.set()
        await first
        assert len(seen) == 2
        assert not engine.under_way
        assert gone.updates.empty()

    with engine_of(model) as engine:
        run(play(engine))


# --- clients that go, and what goes wrong ---------------------------------------------------------------------------


def held(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """No step is done before the event is set."""
    going, step = threading.Event(), engine.step

    def slow() -> torch.Tensor:
        assert going.wait(30)
        return step()

    monkeypatch.setattr(engine, "step", slow)
    return going


async def begun(engine: Engine) -> None:
    """Until a prompt has been read."""
    while not engine.rows:
        await asyncio.sleep(0.001)


def test_a_client_that_hangs_up_frees_its_slots_at_once(model: Model, monkeypatch):
    async def play(engine: Engine) -> None:
        going = held(engine, monkeypatch)
        gone: Ticket[Update] = Ticket()
        engine.submit(gone, [ask(model, [5, 6], limit=60, n=3, streams=True, temperature=1.0)])
        await begun(engine)
        waits = asyncio.create_task(answer(engine, [ask(model, [7], limit=3, n=3, temperature=1.0)]))
        await asyncio.sleep(0)
        gone.is_gone = True
        going.set()
        assert sorted(await waits) == [0, 1, 2], "which needs all slots"

    with engine_of(model, slots=3) as engine:
        run(play(engine))
        assert not engine.rows


def test_a_full_queue(model: Model, monkeypatch):
    async def play(engine: Engine) -> None:
        going = held(engine, monkeypatch)
        first: Ticket[Update] = Ticket()
        engine.submit(first, [ask(model, [5], limit=3, streams=True)])
        await begun(engine)
        gone: Ticket[Update] = Ticket()
        engine.submit(gone, [ask(model, [6])] * 2)
        with pytest.raises(Failed, match="too many requests are waiting") as error:
            engine.submit(Ticket(), [ask(model, [6])])
        assert (error.value.status, error.value.code) == (503, "queue_full")
        gone.is_gone = True
        waits = asyncio.create_task(answer(engine, [ask(model, [8])]))
        await asyncio.sleep(0)
        going.set()
        await waits
        assert gone.updates.empty()

    with engine_of(model, slots=1, most_waiting=2) as engine:
        run(play(engine))


@pytest.mark.parametrize("where", ["read", "step"])
@pytest.mark.parametrize(
    ("error", "status"),
    [(ZeroDivisionError("a bug"), 500), (MemoryError(), 503), (UserError("tokenizer: too much"), 400)],
)
def test_a_failure_is_told_and_the_engine_lives(model: Model, monkeypatch, where: str, error: Exception, status: int):
    def fail(*_: object) -> None:
        raise error

    prompt = ask(model, [5, 6])
    with engine_of(model) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(Prefill if where == "read" else engine, where, fail)
            failure = failed(engine, [prompt])
            assert failure.status == status
        (found,) = answers(engine, [[prompt]])
    assert [written(found[0])] == alone(model, prompt)


def test_numbers_that_are_not_finite_end_one_text_alone(model: Model, monkeypatch):
    good, bad = ask(model, [5, 6], limit=8), ask(model, [7], limit=8)
    with engine_of(model) as engine:
        step = engine.step

        def broken() -> torch.Tensor:
            logits = step()
            for row, own in zip(engine.rows, logits, strict=True):
                if row.prompt is bad:
                    own.fill_(torch.nan)
            return logits

        monkeypatch.setattr(engine, "step", broken)

        async def play() -> object:
            return await asyncio.gather(answer(engine, [good]), answer(engine, [bad]), return_exceptions=True)

        found, failure = run(play())  # pyrefly: ignore[not-iterable]
        assert isinstance(failure, Failed)
        assert "not finite" in str(failure)
        assert [written(found[0])] == alone(model, good)


def test_at_the_end_everybody_is_told(model: Model, monkeypatch):
    async def play(engine: Engine) -> list[object]:
        going = held(engine, monkeypatch)
        asked = [asyncio.create_task(answer(engine, [ask(model, [5], limit=50)])) for _ in range(3)]
        await begun(engine)
        threading.Timer(0.1, going.set).start()
        engine.end()
        await asyncio.to_thread(engine.thread.join)
        with pytest.raises(Failed, match="stopping"):
            engine.submit(Ticket(), [ask(model, [6])])
        return list(await asyncio.gather(*asked, return_exceptions=True))

    with engine_of(model, slots=1) as engine:
        told = run(play(engine))
    assert all(isinstance(one, Failed) and one.status == 503 for one in told)
