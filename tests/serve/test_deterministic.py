"""A deterministic engine: a text has the same tokens and log-probabilities, to the bit, whoever else is there."""

import random

import pytest
import torch

from clearhead.analysis.steering import Direction
from clearhead.api import Model
from clearhead.cli import main
from clearhead.serve.batches import Asked
from clearhead.serve.prefill import FIXED_PIECE
from clearhead.serve.texts import Prompt, Steering, Update
from tests.reliability.alone import compared
from tests.serve.tiny import answers, ask, engine_of, writer_model

MUCH = 1 << 24
CELLS = 4 * FIXED_PIECE


@pytest.fixture(scope="module")
def model() -> Model:
    """In 32 bits and wide enough that products of other shapes round differently."""
    model = writer_model(positions={"kind": "rotary"}, d_model=96, d_ff=384, n_heads=4)
    model.network.float()
    return model


def prompts_of(model: Model, n: int) -> list[Prompt]:
    """Texts of any length, of which some begin alike and longer than a piece, with all settings of chance."""
    draw, steering = random.Random(3), Steering(Direction("decoder.blocks.0.resid_post", torch.ones(96)), 0.5)
    ids = [draw.randrange(4, model.tokenizer.vocab_size) for _ in range(2 * FIXED_PIECE + 9)]
    found: list[Prompt] = []
    for i in range(n):
        own = [draw.randrange(4, model.tokenizer.vocab_size) for _ in range(draw.randint(1, 50))]
        begin = ids[: draw.choice([0, 0, 20, FIXED_PIECE, len(ids)])]
        more = draw.choice([{}, {"temperature": 1.0, "n": 2}, {"temperature": 1.3, "top_p": 0.9}, {"temperature": 0.7}])
        limit, scores = draw.randint(1, 20), {"likeliest": 2, "scores_prompt": i % 5 == 0}
        edits = (steering,) if i % 7 == 3 else ()
        found.append(ask(model, [*begin, *own], limit=limit, seed=i, steering=edits, **scores, **more))
    return found


def told(texts: dict[int, list[Update]]) -> object:
    """The tokens of each text with their log-probabilities, and those of its prompt."""
    return {i: [(u.text, u.tokens, u.prompt, u.reason) for u in updates] for i, updates in texts.items()}


def test_requests_at_once_are_each_alone_to_the_bit(model: Model):
    prompts = prompts_of(model, 14)
    alone: list[object] = []
    with engine_of(model, most_cells=CELLS, is_deterministic=True) as engine:
        alone += [told(answers(engine, [[prompt]])[0]) for prompt in prompts]
    for slots in (3, 8):
        with engine_of(model, slots=slots, most_cells=CELLS, prefix_bytes=MUCH, is_deterministic=True) as engine:
            found = answers(engine, [[prompt] for prompt in prompts])
            again = answers(engine, [[prompt] for prompt in reversed(prompts)])[::-1]
            assert not engine.slots.lengths
        assert [told(one) for one in found] == alone
        assert [told(one) for one in again] == alone, "known beginnings change nothing"
        assert any(u.n_known for texts in again for updates in texts.values() for u in updates)


@pytest.mark.slow
def test_clients_on_a_real_checkpoint_in_its_stored_type(tmp_path):
    assert compared(tmp_path, 12, ["--deterministic"]) == 12


@pytest.mark.parametrize("options", [["--draft", "lookup"], ["--int8"]], ids=["draft", "int8"])
def test_what_depends_on_time_is_refused_beside_it(options: list[str], capsys):
    with pytest.raises(SystemExit) as end:
        main(["serve", "nowhere", "--deterministic", *options])
    (line,) = capsys.readouterr().err.splitlines()
    assert (end.value.code, f"--deterministic: expected no {options[0]} beside it" in line) == (2, True)


def test_inputs_of_predictions_are_answered_one_by_one():
    one, other = Asked(0, "a"), Asked(1, "b")
    assert one.goes_with([], at_once=1)
    assert not other.goes_with([one], at_once=1)
