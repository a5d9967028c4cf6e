"""A recording of one step repeats what the network computes, whatever it is made of, and follows what changes."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearhead import config as c
from clearhead.generation import Finished, complete, decoding, generate
from clearhead.generation.decoding import Decoding
from clearhead.generation.fast import recorded as recorded_steps
from clearhead.generation.fast.recorded import CannotRecordError, NotRepeatedError, Recorded, room_for
from clearhead.model import Tokens, Transformer
from clearhead.model.block import Memory
from clearhead.model.fast.int4 import rounded_to_four_bits
from clearhead.model.fast.int8 import quantized
from clearhead.recipe.generation import GenerationConfig
from clearhead.trace import trace
from tests.generation.networks import BOS, EOS, PAD, network
from tests.model import small
from tests.model.small import assert_close, ids, sequences, visits

SOME = {name: small.PAIRS[name] for name in [*small.PAIRS][::6]} | small.LAYERS | small.MIXERS
EXPERTS = {"experts": c.Experts(n=4, n_chosen=2, d_ff=8, shared=8)}


@pytest.fixture(autouse=True)
def early(monkeypatch) -> list[int]:
    """Recordings begin with the second step; the rows of each."""
    made: list[int] = []
    begin = Recorded.__init__

    def counted(self: Recorded, network: Transformer, tokens: Tokens, *rest: Any, **settings: Any) -> None:
        begin(self, network, tokens, *rest, **settings)
        made.append(tokens.grid[0])

    monkeypatch.setattr(Recorded, "__init__", counted)
    monkeypatch.setattr(decoding, "STEADY", 1)
    return made


@torch.inference_mode()
def repeats(net: Transformer, prompt: Tokens, memory: Memory | None = None) -> None:
    """Steps by a recording have the logits of other steps, and go on without it as if it had never been."""
    plain, past = net.new_cache(), net.new_cache()
    for cache in (plain, past):
        net.decode(prompt, memory, cache)
    steps = [Tokens(ids(len(prompt.ids), 1, seed=i)) for i in range(9)]
    recorded = Recorded(net, steps[0], memory, past, room=12)
    assert_close(recorded.logits, net.decode(steps[0], memory, plain))
    for step in steps[1 : 1 + recorded.left]:
        assert_close(recorded(step), net.decode(step, memory, plain))
    after, grown = steps[-1], recorded.cache.growing()
    assert grown.length == plain.length == 12
    assert_close(net.decode(after, memory, grown), net.decode(after, memory, plain))


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", SOME)
def test_every_mechanism(name: str, padded: bool):
    repeats(small.decoder(**SOME[name]), Tokens.pad(sequences(5, 2, 3) if padded else sequences(5), left=True))


@pytest.mark.parametrize("name", small.MIXERS)
def test_a_compared_step_reads_the_state_before_it(name: str, monkeypatch):
    monkeypatch.setattr(recorded_steps, "CHECKED", 4)
    net = small.decoder(**small.MIXERS[name])
    repeats(net, Tokens(ids(2, 5)))
    monkeypatch.setattr(recorded_steps, "_is_near", lambda *_: False)
    plain, past, step = net.new_cache(), net.new_cache(), Tokens(ids(1, 1))
    with torch.inference_mode():
        for cache in (plain, past):
            net.decode(Tokens(ids(1, 6)), None, cache)
        refused = Recorded(net, step, None, past, room=12)
        net.decode(step, None, plain)
        with pytest.raises(NotRepeatedError):
            refused(step)
        assert_close(net.decode(step, None, refused.cache.growing()), net.decode(step, None, plain))


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("kind", ["experts", "int8", "int4", "cross", "cross int8"])
def test_every_kind_of_part(kind: str, n: int):
    net = small.decoder(**EXPERTS) if kind == "experts" else small.decoder(key_bias=False)
    net = small.encoder_decoder() if "cross" in kind else net
    if "int8" in kind:
        quantized(net)
    if kind == "int4":
        rounded_to_four_bits(net)
    with torch.inference_mode():
        memory = net.encode(Tokens.pad(sequences(*(4, 2, 3)[:n]))) if net.encoder else None
    repeats(net, Tokens(ids(n, 4)), memory)


def texts(net: Transformer, **settings: Any) -> list[list[tuple[int, ...]]]:
    config = GenerationConfig.model_validate({"max_new_tokens": 40, "end_ids": (EOS,), "pad_id": PAD} | settings)
    prompts = [[BOS, 7], [BOS], [BOS, 12, 5]] if net.encoder is None else None
    source = None if net.encoder is None else [[5, 9, 3, 4], [7, 7]]
    found = complete(net, prompts, source=source, config=config, bos_id=BOS)
    return [[text.tokens for text in row] for row in found]


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize(
    "settings",
    [{}, {"temperature": 0.9, "n_best": 2, "seed": 3}, {"beams": 2}, {"repetition_penalty": 1.3, "no_repeat_ngram": 2}],
    ids=["greedy", "sampled", "beams", "controlled"],
)
def test_the_same_texts(cross: bool, settings: dict[str, Any], early: list[int], monkeypatch):
    """Texts end at different steps, and beams move."""
    net = network(cross=cross, ending=1.0)
    found = texts(net, **settings)
    assert early
    monkeypatch.setattr(decoding, "obstacle", lambda _: "a test")
    assert found == texts(net, **settings)


@pytest.mark.parametrize("name", small.MIXERS)
def test_the_same_texts_by_states(name: str, early: list[int], monkeypatch):
    net = small.decoder(**small.MIXERS[name])
    found = texts(net, beams=2)
    assert early
    monkeypatch.setattr(decoding, "obstacle", lambda _: "a test")
    assert found == texts(net, beams=2)


def test_a_text_longer_than_its_room(early: list[int], monkeypatch):
    net, config = network().eval(), GenerationConfig(max_new_tokens=24, min_new_tokens=24, end_ids=(EOS,))
    monkeypatch.setattr(decoding, "room_for", lambda rows, length, most: min(most, length + 6))
    found = complete(net, [[BOS, 7]], config=config)
    assert len(early) == 4
    monkeypatch.setattr(decoding, "obstacle", lambda _: "a test")
    assert found == complete(net, [[BOS, 7]], config=config)


def test_a_trace_sees_its_steps(early: list[int]):
    net, prompt = network(positions=c.Rotary()).eval(), Tokens(torch.tensor([[1, 2, 3]]))
    config = GenerationConfig(max_new_tokens=12, min_new_tokens=12, end_ids=(EOS,))

    def written(looking: range) -> tuple[int, ...]:
        events = generate(net, prompt, config=config)
        for i in range(12):
            if i in looking:
                with trace(net) as seen:
                    next(events)
                assert [k.shape[2] for k in visits(seen, "decoder.blocks.0.attn.k")] == [3 + i]
            else:
                next(events)
        last = next(events)
        assert isinstance(last, Finished)
        return last.hypotheses[0][0].tokens

    assert written(range(5, 7)) == written(range(0))
    assert early == [1, 1, 1], "before and after the trace"


class Choosing(nn.Module):
    """A part that looks at its numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return x if float(x.sum()) > 0 else -x


def test_a_step_that_looks_at_its_numbers_is_not_repeated(early: list[int]):
    net = small.decoder()
    plain = Decoding(net)
    net.get_submodule("decoder.blocks.1").__setattr__("ffn", Choosing())
    prompt, config = Tokens(ids(1, 3)), GenerationConfig(max_new_tokens=12, end_ids=(14,))
    with torch.inference_mode():
        net.decode(prompt, None, plain.cache)
        with pytest.raises(CannotRecordError, match="_local_scalar_dense"):
            Recorded(net, Tokens(ids(1, 1)), None, plain.cache, room=12)
    *_, last = generate(net, prompt, config=config)
    assert isinstance(last, Finished)
    assert len(last.hypotheses[0][0].tokens) == 12
    assert early == []


def test_room_grows_with_the_text_and_shrinks_with_the_rows():
    assert room_for(1, 32, 4000) == 256
    assert room_for(1, 200, 4000) == 512
    assert room_for(1, 2200, 4000) == 2560
    assert room_for(2, 32, 4000) == 128
    assert room_for(8, 32, 4000) == 64
    assert room_for(1, 32, 160) == 160
