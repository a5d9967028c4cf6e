"""With a draft, a text that is alone is written in fewer passes; each text is as without."""

import asyncio
import random
from typing import Any

import pytest
import torch

from clearhead.api import Model
from clearhead.errors import UserError
from clearhead.generation import Sampler, complete
from clearhead.generation.speculation import Pace
from clearhead.serve import drafting
from clearhead.serve.engine import Engine
from clearhead.serve.prefill import BLOCK
from clearhead.serve.schemas import CompletionRequest, Wrong
from clearhead.serve.service import Service
from clearhead.serve.texts import Prompt
from tests.generation.test_speculative import near
from tests.serve.tiny import NAME, answer, ask, client_of, played, run, still_engine, writer_model, written
from tests.small_models import model_of


class Counting(Pace):
    """Three guesses in every pass; counts those that were judged."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong_right = [0, 0]

    def begins(self) -> bool:
        self.left = 3
        return True

    def pays(self, chance: float) -> bool:
        self.left -= 1
        return self.left >= 0

    def judge(self, kind: int, *, is_right: bool) -> None:
        super().judge(kind, is_right=is_right)
        self.wrong_right[is_right] += 1


@pytest.fixture(scope="module")
def model() -> Model:
    return writer_model(positions={"kind": "rotary"})


@pytest.fixture(autouse=True)
def counting(monkeypatch) -> None:
    monkeypatch.setattr(drafting, "Pace", Counting)


def guessed(engine: Engine) -> list[int]:
    assert engine.drafting is not None
    assert isinstance(engine.drafting.pace, Counting)
    return engine.drafting.pace.wrong_right


def alone(model: Model, prompt: Prompt) -> list[int]:
    config = prompt.config.model_copy(update={"max_new_tokens": prompt.limit})
    return list(complete(model.network, [prompt.ids], config=config)[0][0].tokens)


def prompts_of(n: int, seed: int = 3) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(4, 260) for _ in range(draw.randint(1, 20))] for _ in range(n)]


SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "controlled": {"repetition_penalty": 1.3, "no_repeat_ngram": 3, "min_new_tokens": 12},
    "read along": {"streams": True, "likeliest": 2, "scores_prompt": True},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_texts_that_come_and_go_are_as_each_alone(model: Model, settings: dict[str, Any]):
    """Requests come while others are written, so that guesses begin, rest and begin again."""
    limits = [30, 5, 12, 40, 3, 25]
    prompts = [ask(model, ids, limit=n, drafts=True, **settings) for ids, n in zip(prompts_of(6), limits, strict=True)]
    engine = still_engine(model, slots=3, prefix_bytes=1 << 20, draft=near(model.network))

    async def play() -> list[list[int]]:
        asked = []
        with torch.inference_mode():
            for prompt in prompts:
                asked.append(asyncio.ensure_future(answer(engine, [prompt])))
                await asyncio.sleep(0)
                for _ in range(7):
                    if engine.waiting or engine.under_way:
                        engine.turn()
                        engine.post()
                        assert engine.slots.lengths == [len(r.prompt.ids) + len(r.written) - 1 for r in engine.rows]
            while engine.waiting or engine.under_way:
                engine.turn()
                engine.post()
        return [written(found[0]) for found in await asyncio.gather(*asked)]

    assert run(play()) == [alone(model, prompt) for prompt in prompts]
    assert min(guessed(engine)) > 3


def test_a_lookup_keeps_the_text_of_a_seed(model: Model):
    prompts = [ask(model, ids * 2, temperature=0.2, seed=5, limit=44, drafts=True) for ids in prompts_of(4)]
    engine = still_engine(model, draft="lookup", slots=1)
    found = played(engine, [[prompt] for prompt in prompts])
    assert [written(texts[0]) for texts in found] == [alone(model, prompt) for prompt in prompts]
    assert sum(guessed(engine)) > 3


def test_samples_have_the_model_s_distribution(model: Model):
    """Two tokens of three each, the second beside a guess, over 500 seeds, against the exact probabilities."""
    n_texts, ids, settings = 500, [5, 6, 7], {"temperature": 2.0, "top_k": 3}
    prompts = [ask(model, ids, limit=3, seed=seed, drafts=True, **settings) for seed in range(n_texts)]
    sampler = Sampler(prompts[0].config)

    def shares(text: list[int]) -> torch.Tensor:
        with torch.no_grad():
            return sampler.narrow(model.network(torch.tensor([text]))[0, -1:].float()).softmax(-1)[0].double()

    first = shares(ids)
    exact = {
        (a, b): float(first[a] * second[b])
        for a in first.nonzero()[:, 0].tolist()
        for second in [shares([*ids, a])]
        for b in second.nonzero()[:, 0].tolist()
    }
    assert sum(exact.values()) == pytest.approx(1)
    assert len(exact) == 9
    engine = still_engine(model, slots=1, draft=near(model.network, 0.1), most_waiting=n_texts)
    found = [tuple(written(texts[0])[:2]) for texts in played(engine, [[prompt] for prompt in prompts])]
    statistic = sum((found.count(pair) - n_texts * p) ** 2 / (n_texts * p) for pair, p in exact.items())
    assert statistic < 26.1, "chi-square with 8 degrees of freedom, p = 0.001"
    assert min(guessed(engine)) > 50, guessed(engine)


def test_what_is_kept_of_a_text_holds_no_guess(model: Model):
    ids = prompts_of(1)[0]
    prompt = ask(model, ids, limit=2 * BLOCK, drafts=True)
    engine = still_engine(model, slots=1, prefix_bytes=1 << 20, draft=near(model.network, 0.3))
    text = written(played(engine, [[prompt]])[0][0])
    longer = ask(model, [*ids, *text, 9], drafts=True)
    (found,) = played(engine, [[longer]])
    assert found[0][0].n_known >= BLOCK
    assert written(found[0]) == alone(model, longer)


def test_a_long_text_is_read_in_pieces(model: Model, monkeypatch):
    monkeypatch.setattr(drafting, "PIECE", 4)
    prompt = ask(model, list(range(5, 25)), limit=20, drafts=True)
    engine = still_engine(model, slots=1, draft=near(model.network))
    assert written(played(engine, [[prompt]])[0][0]) == alone(model, prompt)
    assert sum(guessed(engine)) > 3


# --- what is asked, and refused -------------------------------------------------------------------------------------


def test_which_requests_have_guesses(model: Model):
    def drafts(server: Model | str | None, **asked: Any) -> bool:
        service = Service(model, NAME, slots=2, max_length=64, draft=server)
        return service.completion(CompletionRequest(prompt=["a"], **asked), [[5]])[0].drafts

    draft = Model(near(model.network), model.tokenizer)
    assert drafts(draft, temperature=0.0, seed=1)
    assert drafts(draft, temperature=1.0)
    assert not drafts(draft, temperature=1.0, seed=1), "a seed's text does not depend on who else is there"
    assert drafts(draft, temperature=1.0, seed=1, draft=True)
    assert drafts("lookup", temperature=1.0, seed=1)
    assert not drafts(draft, temperature=0.0, draft=False)
    with pytest.raises(Wrong, match=r"^draft: this server has none; start it with --draft MODEL$"):
        drafts(None, draft=True)
    assert drafts(None, draft=False) is False


def test_over_http(model: Model):
    asked = {"prompt": "one two three one two", "max_tokens": 20, "temperature": 0}
    with client_of(model) as client:
        expected = client.post("/v1/completions", json=asked).json()["choices"]
        assert client.post("/v1/completions", json={**asked, "draft": True}).status_code == 400
    for draft in (Model(near(model.network), model.tokenizer), "lookup"):
        with client_of(model, draft=draft) as client:
            for given in ({}, {"draft": True}, {"draft": False}):
                assert client.post("/v1/completions", json={**asked, **given}).json()["choices"] == expected


def test_drafts_that_do_not_fit(model: Model):
    def refused(served: Model, draft: Model | str) -> str:
        with pytest.raises(UserError) as error:
            Service(served, NAME, slots=2, max_length=64, draft=draft)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert refused(model, model_of("nano")).startswith("draft: expected token ")
    assert "continues texts, got one of another kind" in refused(model, model_of("bert-base"))
    assert "continues texts, got one that translates" in refused(model_of("demo"), "lookup")
    assert 'expected a model or "lookup"' in refused(model, "gpt2")
