"""Beam search against exhaustive search, greedy search and the transformers library, on small networks."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.generation import Finished, History, Hypothesis, Sampler, Step, complete, generate
from clearhead.generation.search import BeamSearch, Ends
from clearhead.model import Tokens, Transformer
from clearhead.recipe.generation import GenerationConfig
from tests.generation.networks import BOS, EOS, PAD, all_logits, network

SOURCES = [[5, 9, 3, 4], [7, 7], [11, 3, 16, 8, 4, 15, 6], [10]]
PROMPTS = [[BOS, 7], [BOS], [BOS, 12, 5, 5, 9], [BOS, 3, 4]]


def all_texts(net: Transformer, v: int, limit: int) -> dict[tuple[int, ...], float]:
    """Log-probability of every text that ends, or reaches the limit."""
    texts: dict[tuple[int, ...], float] = {}
    for length in range(1, limit + 1):
        for text in itertools.product(range(v), repeat=length):
            if EOS in text[:-1] or (text[-1] != EOS and length < limit):
                continue
            texts[text] = log_prob(net, [BOS], text, None)
    return texts


def log_prob(net: Transformer, prompt: list[int], text: tuple[int, ...], source: list[int] | None) -> float:
    """Of a text after a prompt, in one forward pass."""
    logits = all_logits(net, [*prompt, *text[:-1]], source)[len(prompt) - 1 :]
    return float(logits.log_softmax(-1).gather(1, torch.tensor(text)[:, None]).sum())


def written(hypothesis: Hypothesis) -> tuple[int, ...]:
    """With the end token."""
    return (*hypothesis.tokens, EOS) if hypothesis.reason == "eos" else hypothesis.tokens


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0, -0.5])
def test_beams_as_many_as_texts_find_the_best_texts(penalty: float) -> None:
    v, limit = 4, 3
    net = network(vocab_size=v, seed=4)
    scores = {text: p / len(text) ** penalty for text, p in all_texts(net, v, limit).items()}
    best = sorted(scores, key=lambda text: -scores[text])
    config = GenerationConfig(
        beams=v**limit, n_best=12, max_new_tokens=limit, length_penalty=penalty, early_stopping="never"
    )
    [found] = complete(net, [[BOS]], config=config, eos_id=EOS)
    assert [written(h) for h in found] == best[:12]
    assert [h.score for h in found] == pytest.approx([scores[text] for text in best[:12]], rel=1e-5)


def beam_one(net: Transformer, prompts: list[list[int]], limit: int) -> list[tuple[int, ...]]:
    """Beam search of width 1, its logits computed without a cache."""
    texts: list[tuple[int, ...]] = []
    for prompt in prompts:
        start = History(torch.tensor([prompt]), torch.ones(1, len(prompt), dtype=torch.bool), len(prompt))
        sampler = Sampler(GenerationConfig(max_new_tokens=limit), EOS)
        search = BeamSearch(start, sampler, Ends(EOS, limit), pad_id=PAD)
        move = search.advance(all_logits(net, prompt, None)[-1:])
        while len(move.tokens):
            move = search.advance(all_logits(net, search.history.ids[0].tolist(), None)[-1:])
        texts.append(search.hypotheses()[0][0].tokens)
    return texts


def test_greedy_is_beam_one() -> None:
    net = network()
    config = GenerationConfig(max_new_tokens=14)
    greedy = complete(net, PROMPTS, config=config, eos_id=EOS)
    assert [h.tokens for [h] in greedy] == beam_one(net, PROMPTS, 14)
    assert {h.reason for [h] in greedy} == {"eos", "length"}


def completions(net: Transformer, config: GenerationConfig) -> list[list[Hypothesis]]:
    if net.encoder is not None:
        return complete(net, source=SOURCES, config=config, bos_id=BOS, eos_id=EOS, pad_id=PAD)
    return complete(net, PROMPTS, config=config, eos_id=EOS, pad_id=PAD)


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("early_stopping", [False, True, "never"])
def test_n_best_are_sorted_distinct_and_priced_right(cross: bool, early_stopping: bool | str) -> None:
    net = network(cross=cross)
    config = GenerationConfig.model_validate(
        {
            "beams": 5,
            "n_best": 5,
            "max_new_tokens": 10,
            "early_stopping": early_stopping,
            "length_penalty": 0.7,
        }
    )
    found = completions(net, config)
    for i, row in enumerate(found):
        assert len({written(h) for h in row}) == 5
        assert [h.score for h in row] == sorted((h.score for h in row), reverse=True)
        prompt, source = ([BOS], SOURCES[i]) if cross else (PROMPTS[i], None)
        for h in row:
            text = written(h)
            expected = log_prob(net, prompt, text, source)
            assert h.log_prob == pytest.approx(expected, rel=1e-5)
            assert h.score == pytest.approx(expected / len(text) ** 0.7, rel=1e-5)
            assert h.length == len(text)


def test_more_beams_find_no_worse_scores_here() -> None:
    net = network(seed=1)
    scores = []
    for beams in (1, 4, 16):
        config = GenerationConfig(beams=beams, max_new_tokens=8, length_penalty=0.0, early_stopping="never")
        scores.append(sum(h[0].score for h in complete(net, PROMPTS, config=config, eos_id=EOS)))
    assert scores[0] <= scores[1] + 1e-4 <= scores[2] + 2e-4
    assert scores[0] + 0.1 < scores[2]


def test_steps_and_parents_retell_the_beams() -> None:
    net = network(seed=1)
    config = GenerationConfig(beams=3, n_best=3, max_new_tokens=6)
    *steps, last = generate(net, Tokens.pad([[BOS, 3]]), config=config)
    texts: list[list[int]] = [[], [], []]
    for step in steps:
        assert isinstance(step, Step)
        pairs = zip(step.parents[0].tolist(), step.tokens[0].tolist(), strict=True)
        texts = [[*texts[parent], token] for parent, token in pairs]
    assert isinstance(last, Finished)
    # Without an end token the k best at the limit are the result, in the order of their probability.
    assert [list(h.tokens) for h in last.hypotheses[0]] == texts
    assert {h.reason for h in last.hypotheses[0]} == {"length"}


def test_repetition_control_holds_in_every_hypothesis() -> None:
    net = network()
    config = GenerationConfig(beams=4, n_best=4, max_new_tokens=12, min_new_tokens=6, no_repeat_ngram=2)
    for prompt, row in zip(PROMPTS, complete(net, PROMPTS, config=config, eos_id=EOS), strict=True):
        for h in row:
            text = [*prompt, *written(h)]
            pairs = list(itertools.pairwise(text))
            old = set(itertools.pairwise(prompt))
            assert len(set(pairs) - old) == len([p for p in pairs if p not in old])
            assert h.length > 6 or h.reason == "length"


# --- against the transformers library -----------------------------------------------------------------------

transformers = pytest.importorskip("transformers")


def reference(net: Transformer, cross: bool) -> Any:
    """Our network behind the library's interface, without a cache: only the search is theirs."""
    from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput, Seq2SeqLMOutput

    class Config(transformers.PretrainedConfig):
        model_type = "wrapped"

    class Encoder(torch.nn.Module):
        main_input_name = "input_ids"

        def forward(self, input_ids: Tensor, **_: object) -> BaseModelOutput:
            return BaseModelOutput(last_hidden_state=input_ids[..., None])

    class Wrapped(transformers.PreTrainedModel, transformers.GenerationMixin):
        config_class = Config
        main_input_name = "input_ids"

        def __init__(self, config: Config) -> None:
            super().__init__(config)
            self.net, self.encoder = net, Encoder()

        def get_encoder(self, *_: object, **__: object) -> Encoder:
            return self.encoder

        def prepare_inputs_for_generation(self, input_ids: Tensor, **kwargs: object) -> dict[str, object]:
            names = ("attention_mask", "encoder_outputs")
            return {"input_ids": input_ids, **{name: kwargs[name] for name in names if name in kwargs}}

        def forward(
            self,
            input_ids: Tensor,
            attention_mask: Tensor | None = None,
            encoder_outputs: BaseModelOutput | None = None,
            **_: object,
        ) -> CausalLMOutput | Seq2SeqLMOutput:
            valid = None if attention_mask is None else attention_mask.bool()
            if encoder_outputs is None:
                return CausalLMOutput(logits=self.net(Tokens(input_ids, valid)))
            assert encoder_outputs.last_hidden_state is not None
            source = Tokens(encoder_outputs.last_hidden_state[..., 0], valid)
            return Seq2SeqLMOutput(logits=self.net(source, Tokens(input_ids)))

    return Wrapped(Config(is_encoder_decoder=cross)).eval()


N = 24
SETTINGS: list[dict[str, float | bool | str]] = [
    {},
    {"beams": 4, "length_penalty": 0.6},
    {"beams": 4, "n_best": 4, "length_penalty": 1.0},
    {"beams": 4, "n_best": 2, "length_penalty": 2.0, "early_stopping": True},
    {"beams": 3, "n_best": 3, "length_penalty": 1.5, "early_stopping": "never"},
    {"beams": 4, "length_penalty": 0.0, "early_stopping": "never"},
    {"beams": 4, "length_penalty": -0.5},
    {"beams": 4, "no_repeat_ngram": 2, "min_new_tokens": 6},
    {"beams": 2, "repetition_penalty": 1.3},
    {"repetition_penalty": 1.3, "no_repeat_ngram": 3},
]


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("seed", [0, 20, 25])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.filterwarnings("ignore")
def test_tokens_equal_those_of_transformers(cross: bool, seed: int, settings: dict[str, float | bool | str]) -> None:
    net = network(cross=cross, seed=seed)
    config = GenerationConfig.model_validate({"max_new_tokens": N, **settings})
    ours = completions(net, config)
    # Padding counts as history there and not here: with repetition control, one row at a time.
    rows = SOURCES if cross else PROMPTS
    controlled = config.repetition_penalty != 1.0 or config.no_repeat_ngram is not None
    theirs: list[list[int]] = []
    for batch in [[row] for row in rows] if controlled else [rows]:
        tokens = Tokens.pad(batch, fill=PAD, left=True)
        begin = {"decoder_start_token_id": BOS} if cross else {}
        theirs += (
            reference(net, cross)
            .generate(
                tokens.ids,
                attention_mask=torch.ones_like(tokens.ids) if tokens.valid is None else tokens.valid.long(),
                max_new_tokens=N,
                min_new_tokens=config.min_new_tokens,
                num_beams=config.beams,
                num_return_sequences=config.n_best,
                length_penalty=config.length_penalty,
                early_stopping=config.early_stopping,
                repetition_penalty=config.repetition_penalty,
                no_repeat_ngram_size=config.no_repeat_ngram or 0,
                do_sample=False,
                use_cache=False,
                eos_token_id=EOS,
                pad_token_id=PAD,
                **begin,
            )[:, 1 if cross else tokens.grid[1] :]
            .tolist()
        )
    flat = [list(written(h)) for row in ours for h in row]
    assert len(flat) == len(theirs)
    for mine, other in zip(flat, theirs, strict=True):
        assert other[: len(mine)] == mine
        assert set(other[len(mine) :]) <= {PAD}
