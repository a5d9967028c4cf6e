"""Beam search against exhaustive search, greedy search and the transformers library, on small networks."""

import itertools
from typing import Any

import pytest
import torch

from clearhead.generation import Finished, Hypothesis, Step, complete, generate
from clearhead.model import Tokens, Transformer
from clearhead.recipe.generation import GenerationConfig
from tests.generation import reference
from tests.generation.networks import BOS, EOS, PAD, PROMPTS, SOURCES, all_logits, completions, network


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
def test_beams_as_many_as_texts_find_the_best_texts(penalty: float):
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


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("early_stopping", [False, True, "never"])
def test_n_best_are_sorted_distinct_and_priced_right(cross: bool, early_stopping: bool | str):
    net = network(cross=cross)
    settings = {"beams": 5, "n_best": 5, "max_new_tokens": 10, "early_stopping": early_stopping, "length_penalty": 0.7}
    config = GenerationConfig.model_validate(settings)
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


def test_steps_and_parents_retell_the_beams():
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


# --- against the transformers library -----------------------------------------------------------------------

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
SPECIAL = {"start_id": BOS, "end_ids": [EOS], "pad_id": PAD}


def texts(net: Transformer, config: GenerationConfig) -> list[list[int]]:
    """Every hypothesis, its end token included."""
    found = completions(net, config)
    return [[*h.tokens, *([] if h.end_id is None else [h.end_id])] for row in found for h in row]


SEEDS = (0, 20, 25)
EVERY = itertools.product(enumerate(SETTINGS), enumerate(SEEDS), (False, True))
"""Every run of the suite takes one of these networks for each setting, in turn, with an encoder and without."""


@pytest.mark.parametrize(
    ("settings", "seed", "cross"),
    [
        pytest.param(one, seed, cross, marks=[] if (i + cross) % len(SEEDS) == j else [pytest.mark.slow])
        for (i, one), (j, seed), cross in EVERY
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore")
def test_tokens_equal_those_of_transformers(cross: bool, seed: int, settings: dict[str, Any]):
    config = GenerationConfig.model_validate({"max_new_tokens": 24, **SPECIAL, **settings})
    net = network(cross=cross, seed=seed)
    assert texts(net, config) == reference.texts(net, SOURCES if cross else PROMPTS, config)


THREE = {"end_ids": [EOS, 7, 11]}
LONG: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beams-0.6": {"beams": 4, "length_penalty": 0.6},
    "beams-1.0-early": {"beams": 4, "n_best": 4, "early_stopping": True},
    "beams-2.0-never": {"beams": 4, "n_best": 2, "length_penalty": 2.0, "early_stopping": "never"},
    "greedy-ends": THREE,
    "beams-ends": THREE | {"beams": 4, "n_best": 4, "length_penalty": 0.6},
    "beams-ends-early": THREE | {"beams": 2, "n_best": 2, "early_stopping": True, "min_new_tokens": 5},
    "greedy-forced": {"forced_first_id": 5, "forced_last_id": EOS, "max_new_tokens": 9},
    "beams-forced": {"forced_first_id": 5, "forced_last_id": EOS, "beams": 4, "n_best": 3, "max_new_tokens": 9},
    "forced-elsewhere": {"forced_last_id": 3, "beams": 3, "n_best": 3, "length_penalty": 0.6, "max_new_tokens": 7},
    "greedy-banned": {"banned_ids": [4, 8, PAD]},
    "beams-banned": {"banned_ids": [4, 8, PAD], "beams": 4, "n_best": 4},
    "beams-endless": {"banned_ids": [EOS, 4], "beams": 4, "max_new_tokens": 20},
    "greedy-all": THREE
    | {"banned_ids": [4], "min_new_tokens": 8, "no_repeat_ngram": 2}
    | {"forced_last_id": 7, "max_new_tokens": 10},
    "beams-all": THREE
    | {"banned_ids": [4], "min_new_tokens": 8, "no_repeat_ngram": 3, "repetition_penalty": 1.2}
    | {"forced_first_id": 5, "forced_last_id": EOS, "beams": 4, "n_best": 4, "length_penalty": 2.0},
}


@pytest.mark.parametrize(
    ("name", "cross"),
    [
        pytest.param(name, cross, marks=[] if i % 2 == cross else [pytest.mark.slow])
        for i, name in enumerate(LONG)
        for cross in (False, True)
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_long_texts_equal_those_of_transformers(cross: bool, name: str):
    net = network(cross=cross, seed=3, ending=-0.5)
    config = GenerationConfig.model_validate({"max_new_tokens": 40, **SPECIAL, **LONG[name]})
    assert texts(net, config) == reference.texts(net, SOURCES if cross else PROMPTS, config)
