"""Tokens chosen together are those that each row chooses alone."""

import pytest
import torch

from clearhead.generation import Sampler
from clearhead.recipe.generation import GenerationConfig
from clearhead.serve.texts import Prompt, Writing, choose, scored
from clearhead.serve.worker import Ticket
from clearhead.text.detokenizer import Detokenizer
from tests.serve.tiny import writer_model

V = 30
SETTINGS: list[dict[str, object]] = [
    {},
    {"temperature": 1.0, "seed": 3},
    {"temperature": 1.0, "seed": 4},
    {"temperature": 0.7, "top_k": 5, "seed": 1},
    {"temperature": 1.3, "top_p": 0.8},
    {"temperature": 1.3, "top_p": 0.8, "seed": 9},
    {"temperature": 1.0, "min_p": 0.1},
    {"repetition_penalty": 3.0},
    {"temperature": 2.0, "repetition_penalty": 1.5, "no_repeat_ngram": 2, "seed": 5},
    {"min_new_tokens": 4, "end_ids": (7, 8)},
    {"banned_ids": (1, 2, 3), "temperature": 1.0},
    {"forced_last_id": 11},
]


@pytest.fixture
def rows() -> list[Writing]:
    """One row of each setting, at different places."""
    tokenizer = writer_model().tokenizer
    found: list[Writing] = []
    for i, settings in enumerate(SETTINGS):
        prompt = Prompt(ids=[1 + i % 5, 2, 3], config=GenerationConfig.model_validate(settings), number=i, n=3, limit=4)
        row = Writing(object.__new__(Ticket), prompt, i % 3, Detokenizer(tokenizer, prompt.ids))
        row.written = [4, 5, 2, 6][: i % 4]
        found.append(row)
    return found


def test_each_row_by_its_own_settings(rows: list[Writing]):
    torch.manual_seed(2)
    for _ in range(20):
        logits = torch.randn(len(rows), V) * 2
        alone: list[int] = []
        for row, own in zip(rows, logits.split(1), strict=True):
            sampler = Sampler(row.prompt.config, row.prompt.limit)
            scores = sampler.control(own, row.history(own.device))
            alone.append(int(sampler.choose(scores, [row.name], len(row.written))))
        assert choose(logits, rows) == alone
        order = torch.randperm(len(rows)).tolist()
        assert choose(logits[order], [rows[i] for i in order]) == [alone[i] for i in order]


def test_a_row_without_numbers_harms_no_other(rows: list[Writing]):
    torch.manual_seed(3)
    logits = torch.randn(len(rows), V)
    good = choose(logits, rows)
    bad = logits.clone()
    bad[1], bad[7] = torch.nan, torch.inf
    assert choose(bad, rows) == [None if i in (1, 7) else token for i, token in enumerate(good)]


def test_scores_are_log_probabilities():
    logits = torch.tensor([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]])
    expected = logits.log_softmax(-1)
    (first, likeliest), (second, _) = scored(logits, [0, 1], 2)
    assert first == pytest.approx(float(expected[0, 0]))
    assert second == pytest.approx(float(expected[1, 1]))
    assert [token for token, _ in likeliest] == [2, 1]
    assert [score for _, score in likeliest] == pytest.approx(expected[0, [2, 1]].tolist())
    assert scored(logits, [0, 1], 0)[0][1] == []
