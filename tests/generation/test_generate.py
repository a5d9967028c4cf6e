"""Generation end to end: caches, padding, batches, streaming, stopping, and what the user can get wrong."""

import itertools
from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from clearhead import config as c
from clearhead.errors import UserError
from clearhead.generation import Finished, Step, complete, generate, in_batches
from clearhead.model import Tokens, Transformer
from clearhead.model.attention import Attention
from clearhead.recipe.generation import GenerationConfig
from clearhead.trace import trace
from tests.generation.networks import BOS, EOS, PAD, PROMPTS, SOURCES, V, all_logits, completions, network, tokens
from tests.model.small import visits

GREEDY = GenerationConfig(max_new_tokens=14)
BEAMS = GenerationConfig(max_new_tokens=14, beams=4, n_best=3)
SAMPLES = GenerationConfig(max_new_tokens=14, temperature=0.9, top_p=0.95, n_best=3, seed=11)
CONTROLLED = GenerationConfig(max_new_tokens=14, beams=3, no_repeat_ngram=2, repetition_penalty=1.2, min_new_tokens=3)
CONFIGS = {"greedy": GREEDY, "beams": BEAMS, "samples": SAMPLES, "controlled": CONTROLLED}


@pytest.mark.parametrize("cross", [False, True])
def test_cached_equals_uncached(cross: bool):
    net = network(cross=cross)
    for i, [hypothesis] in enumerate(completions(net, GREEDY)):
        text, source = ([BOS], SOURCES[i]) if cross else (list(PROMPTS[i]), None)
        for _ in range(hypothesis.length):
            text.append(int(all_logits(net, text, source)[-1].argmax()))
        expected = text[1 if cross else len(PROMPTS[i]) :]
        assert [*hypothesis.tokens, EOS][: hypothesis.length] == expected
        assert hypothesis.reason == ("eos" if expected[-1] == EOS else "length")


POSITIONS = {
    "learned": c.Learned(max_length=64),
    "rotary": c.Rotary(),
    "relative": c.RelativeBias(),
    "alibi": c.ALiBi(),
    "sinusoidal": c.Sinusoidal(),
}


@pytest.mark.parametrize(
    ("positions", "name"),
    [
        *((positions, "controlled") for positions in POSITIONS),
        *itertools.product(("sinusoidal", "rotary"), [*CONFIGS][:3]),
    ],
)
def test_batch_and_padding_change_nothing(positions: str, name: str):
    """Texts of a decoder, and translations with sinusoidal positions."""
    net = network(cross=positions == "sinusoidal", positions=POSITIONS[positions])
    together, alone = completions(net, CONFIGS[name]), completions(net, CONFIGS[name], budget=1)
    assert tokens(together) == tokens(alone)
    for row, other in zip(together, alone, strict=True):
        assert [h.score for h in row] == pytest.approx([h.score for h in other], rel=1e-5)
    assert len({h.length for row in together for h in row}) > 1


@pytest.mark.parametrize("name", ["greedy", "samples"])
def test_stream_is_the_completion(name: str):
    net, config = network(), CONFIGS[name]
    *events, last = generate(net, Tokens.pad(PROMPTS, fill=PAD, left=True), config=config, eos_id=EOS, pad_id=PAD)
    steps = [event for event in events if isinstance(event, Step)]
    assert isinstance(last, Finished)
    assert [step.index for step in steps] == list(range(len(events)))
    assert all((step.parents == torch.arange(config.width)).all() for step in steps)
    written, log_probs, done = (
        torch.stack([getattr(step, field) for step in steps]) for field in ("tokens", "log_probs", "finished")
    )
    before = torch.cat([torch.zeros_like(done[:1]), done[:-1]])
    assert (written[before] == PAD).all()
    assert (log_probs[before] == 0).all()
    assert (done | ~before).all()
    assert done[-1].all()
    streamed = {
        (i, tuple(written[~before[:, i, k], i, k].tolist()), round(float(log_probs[:, i, k].sum()), 3))
        for i, k in done[-1].nonzero().tolist()
    }
    ended = [(i, h, (EOS,) if h.reason == "eos" else ()) for i, row in enumerate(last.hypotheses) for h in row]
    assert streamed == {(i, (*h.tokens, *end), round(h.log_prob, 3)) for i, h, end in ended}
    assert last.hypotheses == completions(net, config)


@pytest.mark.parametrize("config", [GREEDY, BEAMS])
def test_stop_ends_a_text_with_the_tokens_that_stopped_it(config: GenerationConfig):
    net = network()
    free = complete(net, PROMPTS, config=GREEDY, eos_id=EOS)
    pair = free[0][0].tokens[1:3]

    def stop(text: list[int]) -> bool:
        return tuple(text[-2:]) == pair

    for row in complete(net, PROMPTS, config=config, eos_id=EOS, stop=stop):
        for h in row:
            stops = [i for i in range(2, len(h.tokens) + 1) if h.tokens[i - 2 : i] == pair]
            assert stops == ([len(h.tokens)] if h.reason == "stop" else [])
    [first] = complete(net, PROMPTS[:1], config=GREEDY, eos_id=EOS, stop=stop)
    assert (first[0].tokens, first[0].reason) == (free[0][0].tokens[:3], "stop")


def test_special_tokens_of_the_config_win():
    net = network(cross=True)
    config = GenerationConfig(max_new_tokens=14, start_id=5, end_ids=(12,))
    arguments = complete(net, source=SOURCES, config=GREEDY, bos_id=5, eos_id=12)
    assert complete(net, source=SOURCES, config=config, bos_id=BOS, eos_id=EOS) == arguments
    assert complete(net, source=SOURCES, config=GREEDY, bos_id=BOS, eos_id=EOS) != arguments


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("beams", [1, 3])
def test_forced_tokens_are_certain(cross: bool, beams: int):
    net = network(cross=cross)
    config = GenerationConfig(
        max_new_tokens=5, beams=beams, forced_first_id=3, forced_last_id=EOS, min_new_tokens=5, start_id=BOS
    )
    found = complete(net, [[BOS]], source=[SOURCES[0]] if cross else None, config=config, eos_id=EOS)
    [best] = found[0]
    assert (best.tokens[0], len(best.tokens), best.end_id) == (3, 4, EOS)
    logits = all_logits(net, [BOS, *best.tokens], SOURCES[0] if cross else None)
    chosen = logits.log_softmax(-1).gather(1, torch.tensor([*best.tokens, EOS])[:, None])[1:-1]
    assert best.log_prob == pytest.approx(float(chosen.sum()), rel=1e-5)


def test_a_longer_beginning_has_nothing_forced_on_it_whatever_the_batch():
    config = GenerationConfig(max_new_tokens=4, forced_first_id=3)
    found = tokens(complete(network(), PROMPTS, config=config))
    free = tokens(complete(network(), PROMPTS, config=GenerationConfig(max_new_tokens=4)))
    assert [row[0][0] == 3 for row in found] == [len(prompt) == 1 for prompt in PROMPTS]
    assert [a == b for a, b in zip(found, free, strict=True)] == [len(prompt) > 1 for prompt in PROMPTS]


@pytest.mark.parametrize("config", [GREEDY, BEAMS, SAMPLES], ids=["greedy", "beams", "samples"])
def test_banned_tokens_are_never_written(config: GenerationConfig):
    net, banned = network(), (4, 12, 14, 500)
    free, found = (completions(net, one) for one in (config, config.model_copy(update={"banned_ids": banned})))
    assert {token for row in free for h in row for token in h.tokens} & set(banned)
    assert not {token for row in found for h in row for token in h.tokens} & set(banned)


PROMPT = Tokens.pad([[BOS]])


@pytest.mark.parametrize("name", ["start_id", "forced_first_id", "forced_last_id"])
def test_a_token_beyond_the_vocabulary_is_named(name: str):
    with pytest.raises(UserError, match=f"generation.{name}: expected a token of the vocabulary, below {V}, got {V}"):
        generate(network(), None if name == "start_id" else PROMPT, config=GenerationConfig.model_validate({name: V}))


def test_a_start_or_padding_token_beyond_the_vocabulary_stops_no_prompt():
    net = network()
    assert completions(net, GREEDY, bos_id=V, pad_id=V) == completions(net, GREEDY)


def test_a_decoder_prompt_begins_a_translation():
    net = network(cross=True)
    config = GenerationConfig(max_new_tokens=6, beams=2)
    whole = complete(net, source=SOURCES, config=config, bos_id=BOS)
    forced = complete(net, [[BOS, *row[0].tokens[:1]] for row in whole], source=SOURCES, config=GREEDY)
    for source, row, [h] in zip(SOURCES, whole, forced, strict=True):
        begun = [BOS, *row[0].tokens[:1]]
        assert int(all_logits(net, begun, source)[-1].argmax()) == h.tokens[0]


def test_each_step_is_one_visit_of_a_trace():
    net = network(cross=True)
    source = Tokens.pad(SOURCES[:1])
    with trace(net) as seen:
        *steps, last = generate(net, source=source, config=GREEDY, bos_id=BOS, eos_id=EOS)
    assert isinstance(last, Finished)
    assert tokens(last.hypotheses) == tokens(complete(net, source=SOURCES[:1], config=GREEDY, bos_id=BOS, eos_id=EOS))
    weights = visits(seen, "decoder.blocks.1.cross.weights")
    assert len(weights) == len(steps) == last.hypotheses[0][0].length
    assert [tuple(w.shape) for w in weights] == [(1, 2, 1, 4)] * len(steps)
    assert [w.shape[-1] for w in visits(seen, "decoder.blocks.0.attn.weights")] == list(range(1, len(steps) + 1))
    assert not weights[0].is_inference()


@pytest.mark.parametrize("name", ["beams", "controlled"])
def test_beams_of_an_input_read_one_memory_and_a_trace_sees_each_its_own(name: str):
    net, rows = network(cross=True), list[tuple[int, int]]()
    assert net.decoder is not None
    cross = net.decoder.blocks[1].cross
    untraced = completions(net, CONFIGS[name])
    batches = (Tokens(torch.full((len(SOURCES), 1), BOS)), Tokens.pad(SOURCES, packed=True))
    config = CONFIGS[name].with_ids(start_id=BOS, end_id=EOS, pad_id=PAD)
    attend = Attention.explicit

    def seen(self: Attention, q: Tensor, k: Tensor, *rest: Any) -> Tensor:
        if self is cross:
            rows.append((len(k), q.shape[2]))
        return attend(self, q, k, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Attention, "explicit", seen)
        *_, last = generate(net, batches[0], source=batches[1], config=config)
    assert isinstance(last, Finished)
    assert tokens(last.hypotheses) == tokens(untraced)
    assert rows[1] == (len(SOURCES), config.width)
    with trace(net) as t:
        *_, last = generate(net, batches[0], source=batches[1], config=config)
    assert isinstance(last, Finished)
    assert tokens(last.hypotheses) == tokens(untraced)
    assert visits(t, "decoder.blocks.1.cross.weights")[1].shape[:3] == (len(SOURCES) * config.width, 2, 1)


def test_two_texts_at_once_leave_a_network_in_training_as_it_was():
    """The first to end would otherwise switch dropout on for the other."""
    net = network().train()
    [[alone]] = complete(net, PROMPTS[:1], config=GREEDY, eos_id=EOS)
    short = GenerationConfig(max_new_tokens=2)
    both = [generate(net, Tokens.pad(PROMPTS[:1]), config=one, eos_id=EOS) for one in (short, GREEDY)]
    events = list(itertools.zip_longest(*both))
    found = [event.hypotheses[0][0] for pair in events for event in pair if isinstance(event, Finished)]
    assert found[-1].tokens == alone.tokens
    assert all(module.training for module in net.modules())


def test_generation_ends_where_the_positions_do():
    net = network(positions=c.Learned(max_length=6))
    [[h]] = complete(net, [[BOS, 3, 4]], config=GenerationConfig(max_new_tokens=50))
    # Six positions are read: the prompt's three and three of the four that are written.
    assert (len(h.tokens), h.reason) == (4, "length")
    last = GenerationConfig(max_new_tokens=50, forced_last_id=EOS, end_ids=(EOS,), min_new_tokens=50)
    [[h]] = complete(net, [[BOS, 3, 4]], config=last)
    assert (len(h.tokens), h.end_id) == (3, EOS)


def mistakes() -> Sequence[tuple[str, Transformer, dict[str, Tokens | int]]]:
    short = network(positions=c.Learned(max_length=4))
    stack = short.config.decoder
    encoder = Transformer(c.ModelConfig(encoder=stack))
    one, long = Tokens.pad([[BOS]]), Tokens.pad([[BOS, 3, 4, 5, 6]])
    right = Tokens.pad([[BOS, 3], [BOS]])
    return [
        ("at most 4 tokens.*got 5", short, {"prompts": long}),
        ("padded on the left", short, {"prompts": right}),
        ("neither", short, {}),
        ("no encoder, got a source", short, {"prompts": one, "source": one}),
        ("an encoder, got no source", network(cross=True), {"bos_id": BOS}),
        ("one prompt a source, got 2 and 1", network(cross=True), {"prompts": right, "source": one}),
        ("writes nothing", encoder, {"prompts": one}),
    ]


@pytest.mark.parametrize("case", range(7))
def test_mistakes_are_told_at_the_call(case: int):
    message, net, given_ = mistakes()[case]
    with pytest.raises(UserError, match=message):
        generate(net, **given_)  # pyrefly: ignore[bad-argument-type]


def test_an_empty_input_is_named_and_no_input_gives_no_output():
    with pytest.raises(UserError, match="input 2"):
        complete(network(), [[BOS], []])
    assert complete(network(), [], config=GREEDY) == []


@given(st.lists(st.integers(1, 30), max_size=40), st.integers(1, 100))
def test_batches_hold_each_input_once_within_the_budget(lengths: list[int], budget: int):
    batches = in_batches(lengths, budget=budget)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= budget
