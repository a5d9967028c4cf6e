"""Compiled steps write what the others write, by one graph for all of them."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from clearhead import config as c
from clearhead.errors import UserError
from clearhead.generation import Finished, complete, generate
from clearhead.generation.fast import compiled
from clearhead.model import Tokens, Transformer
from clearhead.recipe.generation import GenerationConfig
from clearhead.trace import trace
from tests.generation.networks import network
from tests.model.small import visits

PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9]]
CONFIGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 1.0, "seed": 3},
    "controlled": {"repetition_penalty": 1.5, "no_repeat_ngram": 2},
}


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Graphs that run as they were captured, counted."""
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counting = CompileCounterWithBackend("aot_eager")
    monkeypatch.setattr(compiled, "BACKEND", counting)
    yield counting
    torch._dynamo.reset()


def written(net: Transformer, prompt: list[int], **settings: Any) -> tuple[int, ...]:
    config = GenerationConfig.model_validate({"max_new_tokens": 12, **settings})
    source = Tokens(torch.tensor([[3, 4, 5]])) if net.encoder else None
    *_, last = generate(net, Tokens(torch.tensor([prompt])), source=source, config=config)
    assert isinstance(last, Finished)
    return last.hypotheses[0][0].tokens


def both(net: Transformer, prompt: list[int], **settings: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """As it is written without, and by compiled steps."""
    net.compiles_steps = False
    plain = written(net, prompt, **settings)
    net.compiles_steps = True
    return plain, written(net, prompt, **settings)


def test_one_graph_writes_all_texts(counter: Any) -> None:
    net = network(positions=c.Rotary()).eval()
    for prompt in PROMPTS:
        for settings in CONFIGS.values():
            plain, fast = both(net, prompt, **settings)
            assert fast == plain
    assert counter.frame_count == 1


def test_a_text_up_to_the_last_position(counter: Any) -> None:
    net = network(positions=c.Learned(max_length=9)).eval()
    for n in (1, 50):
        plain, fast = both(net, [1, 2, 3], max_new_tokens=n)
        assert fast == plain
        assert len(fast) == min(n, 7)
    assert counter.frame_count == 1


def test_a_translation(counter: Any) -> None:
    plain, fast = both(network(cross=True).eval(), [1])
    assert fast == plain
    assert counter.frame_count == 1


def test_several_texts_and_what_is_looked_at_are_not_compiled(counter: Any) -> None:
    net = network(positions=c.Rotary()).eval()
    net.compiles_steps = True
    complete(net, PROMPTS, config=GenerationConfig(max_new_tokens=4))
    complete(net, PROMPTS[:1], config=GenerationConfig(max_new_tokens=4, beams=2))
    with trace(net) as seen:
        written(net, PROMPTS[0], max_new_tokens=4)
    assert [k.shape[2] for k in visits(seen, "decoder.blocks.0.attn.k")] == [3, 4, 5, 6]
    assert counter.frame_count == 0


def test_a_machine_that_cannot_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no compiler\nand more of it")

    torch._dynamo.reset()
    monkeypatch.setattr(compiled, "BACKEND", broken)
    net = network(positions=c.Rotary()).eval()
    net.compiles_steps = True
    with pytest.raises(UserError, match=r"^compile: expected a machine .* no compiler.*; leave it out$"):
        written(net, PROMPTS[0])
    torch._dynamo.reset()


@pytest.mark.slow
def test_machine_code_writes_the_same() -> None:
    torch._dynamo.reset()
    net = network(positions=c.Rotary()).eval()
    for prompt in PROMPTS:
        plain, fast = both(net, prompt, max_new_tokens=40)
        assert fast == plain
    torch._dynamo.reset()
