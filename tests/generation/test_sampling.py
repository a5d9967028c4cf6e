"""Each rule of sampling against its definition, and chance against its distribution."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from pydantic import ValidationError
from torch import Tensor

from clearhead.generation import History, Sampler
from clearhead.generation import sampling as s
from clearhead.recipe.generation import GenerationConfig


def history(*rows: list[int], n_prompt: int = 0) -> History:
    ids = torch.tensor(rows)
    return History(ids, torch.ones_like(ids, dtype=torch.bool), n_prompt)


score_rows = st.lists(st.integers(-40, 40), min_size=2, max_size=12).map(lambda x: torch.tensor([x]) / 8.0)


def kept(scores: Tensor) -> list[int]:
    return scores[0].isfinite().nonzero()[:, 0].tolist()


@given(score_rows, st.integers(1, 14))
def test_top_k_keeps_the_likeliest_and_their_equals(scores: Tensor, k: int):
    ordered = sorted(scores[0].tolist(), reverse=True)
    least = ordered[min(k, len(ordered)) - 1]
    assert kept(s.top_k(scores, k)) == [i for i, x in enumerate(scores[0].tolist()) if x >= least]


@given(score_rows, st.floats(0.0, 0.99))
def test_min_p_keeps_tokens_near_the_likeliest(scores: Tensor, fraction: float):
    scores = scores.double()
    ratio = (scores - scores.max()).exp()[0].tolist()
    sure = [i for i, r in enumerate(ratio) if abs(r - fraction) > 1e-9]
    chosen = kept(s.min_p(scores, fraction))
    assert [i for i in sure if i in chosen] == [i for i in sure if ratio[i] > fraction]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(1, 4))
def test_repeated_ngrams_are_those_that_are_there(row: list[int], n: int):
    grams = {tuple(row[i : i + n]) for i in range(len(row) - n + 1)}
    expected = [tuple([*row, token][-n:]) in grams and len(row) >= n for token in range(4)]
    assert s.repeated_ngrams(history(row), n, 4)[0].tolist() == expected


def test_padding_is_not_history():
    ids = torch.tensor([[0, 0, 0, 2, 3, 2]])
    padded = History(ids, torch.tensor([[False, False, False, True, True, True]]), 6)
    assert s.seen(padded, 4)[0].tolist() == [False, False, True, True]
    assert s.repeated_ngrams(padded, 1, 4)[0].tolist() == [False, False, True, True]
    assert s.repeated_ngrams(padded, 2, 4)[0].tolist() == [False, False, False, True]


def test_repetition_penalty_makes_seen_tokens_less_likely_on_both_sides_of_zero():
    scores = torch.tensor([[2.0, -2.0, 2.0, -2.0]])
    there = torch.tensor([[True, True, False, False]])
    assert s.repetition_penalty(scores, there, 2.0).tolist() == [[1.0, -4.0, 2.0, -2.0]]


def test_control_forbids_the_end_before_the_minimum_and_never_everything():
    sampler = Sampler(GenerationConfig(min_new_tokens=2, no_repeat_ngram=1, end_ids=(2,)))
    scores = torch.zeros(1, 3)
    assert kept(sampler.control(scores, history([0], n_prompt=1))) == [1]
    assert kept(sampler.control(scores, history([0, 0, 0], n_prompt=1))) == [1, 2]
    assert kept(sampler.control(scores, history([0, 1], n_prompt=1))) == [0, 1, 2]


def chi_square(expected: Tensor, tokens: Tensor) -> float:
    counts = tokens.bincount(minlength=len(expected)).double()
    n = counts.sum()
    there = expected > 0
    assert counts[~there].sum() == 0
    return float(((counts - n * expected)[there] ** 2 / (n * expected)[there]).sum())


@pytest.mark.parametrize(
    ("settings", "likely"),
    [
        ({"temperature": 1.0}, [0, 1, 2, 3, 4]),
        ({"temperature": 0.5}, [0, 1, 2, 3, 4]),
        ({"temperature": 2.0, "top_k": 3}, [0, 2, 4]),
        ({"temperature": 1.0, "top_p": 0.6}, [0, 2]),
        ({"temperature": 1.0, "min_p": 0.3}, [0, 2, 4]),
    ],
)
def test_samples_follow_the_distribution(settings: dict[str, float], likely: list[int]):
    logits = torch.tensor([1.5, -0.5, 1.0, 0.0, 0.5])
    config = GenerationConfig.model_validate(settings | {"seed": 3})
    expected = torch.zeros(5, dtype=torch.float64)
    expected[likely] = (logits.double()[likely] / config.temperature).softmax(-1)
    n = 4000
    tokens = Sampler(config).choose(logits.expand(n, -1), [(row, 0) for row in range(n)], 7)
    assert chi_square(expected, tokens) < 18.5  # exceeded once in a thousand seeds at 4 degrees of freedom


def test_chance_differs_by_seed_row_sample_and_step():
    logits = torch.zeros(1, 1000)

    def token(seed: int, row: int, sample: int, step: int) -> int:
        config = GenerationConfig(temperature=1.0, seed=seed)
        return int(Sampler(config).choose(logits, [(row, sample)], step))

    base = token(0, 0, 0, 0)
    assert base == token(0, 0, 0, 0)
    assert len({base, token(1, 0, 0, 0), token(0, 1, 0, 0), token(0, 0, 1, 0), token(0, 0, 0, 1)}) == 5


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.sampled_from([0.0, 1e-300, 0.5, 1 - 2**-53]))
def test_draw_never_takes_the_impossible(weights: list[int], chance: float):
    probabilities = torch.tensor([[*weights, 1, 0]], dtype=torch.float32)
    token = s.draw(probabilities / probabilities.sum(), [chance])
    assert probabilities[0, int(token)] > 0


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"beams": 4, "temperature": 1.0}, "beams=4"),
        ({"n_best": 3, "beams": 2}, "n_best=3"),
        ({"min_new_tokens": 9, "max_new_tokens": 8}, "min_new_tokens=9"),
        ({"top_k": 5}, "top_k=5"),
        ({"temperature": 1.0, "top_p": 0.0}, "top_p"),
        ({"beam": 4}, "beam"),
    ],
)
def test_contradictions_are_refused_by_name(settings: dict[str, float], named: str):
    with pytest.raises(ValidationError, match=named):
        GenerationConfig.model_validate(settings)


@pytest.mark.parametrize("p", [1e-6, 0.3, 0.9, 0.999])
@pytest.mark.parametrize(("size", "spread"), [(9, 2.0), *((3 * s.SHORTLIST, spread) for spread in (0.1, 3.0, 6.0))])
def test_top_p_keeps_the_fewest_that_reach_p(size: int, spread: float, p: float):
    scores = (torch.randn(4, size, dtype=torch.float64) * spread).round(decimals=1)  # With equal ones.
    for row, narrowed in zip(scores, s.top_p(scores, p), strict=True):
        values, shares = row.tolist(), row.softmax(-1).tolist()
        mass, chosen = 0.0, set[int]()
        for i in sorted(range(len(values)), key=lambda i: -values[i]):
            if mass >= p:
                break
            chosen.add(i)
            mass += shares[i]
        assert set(narrowed.isfinite().nonzero()[:, 0].tolist()) == chosen
        assert torch.equal(narrowed[sorted(chosen)], row[sorted(chosen)])


@pytest.mark.parametrize("v", [5, 129, 4_000, 4_096])
def test_the_likeliest_are_those_of_topk(v: int):
    """Also where tokens are forbidden, and where the last run of the vocabulary is not whole."""
    scores = torch.randn(6, v).log_softmax(-1)
    scores[0, 1:] = s.NEVER
    scores[1, -1] = 1.0
    values, tokens = s.likeliest(scores, 5)
    best = scores.topk(5)
    assert torch.equal(values, best.values)
    assert torch.equal(tokens[1:], best.indices[1:])
    assert tokens[0, 0] == 0
    assert torch.equal(scores.gather(1, tokens), values)
