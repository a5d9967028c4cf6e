import numpy as np
import pytest

from clearhead.errors import UserError
from clearhead.recipe.data import Corruption, Infilling, Spans
from clearhead.recipe.tokenizers import Words
from clearhead.tasks.denoising import Infiller, SpanCorruptor, corruptor, extended_for
from clearhead.text.tokenizers import Tokenizer

TEXTS = ["one two three. four five! six seven eight nine ten"]


def tokenizer_of(config: Corruption) -> Tokenizer:
    return extended_for(config, Tokenizer.train(TEXTS, Words()))


def of(config: Spans | Infilling) -> tuple[Tokenizer, SpanCorruptor | Infiller]:
    tokenizer = tokenizer_of(config)
    return tokenizer, corruptor(config, tokenizer)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 40, 300])
def test_spans_and_what_is_kept_are_the_text(n: int):
    _, corrupt = of(Spans())
    assert isinstance(corrupt, SpanCorruptor)
    ids = np.arange(1000, 1000 + n)
    for seed in range(20):
        source, target = corrupt(ids, np.random.default_rng(seed))
        spans: dict[int, list[int]] = {}
        for token in target:
            if token in corrupt.sentinels:
                spans[token] = []
            else:
                spans[[*spans][-1]].append(token)
        restored = [x for token in source for x in spans.get(token, [token])]
        assert restored == ids.tolist()
        assert [*spans] == list(corrupt.sentinels[: len(spans)]), "in order, and one after the last span"
        assert [len(source), len(target)] == corrupt.sizes(np.array([n]))[0].tolist()
        assert all(spans[token] for token in [*spans][:-1])
    n_noise = max(1, round(0.15 * n))
    assert sum(map(len, spans.values())) == n_noise
    assert len(spans) - 1 == max(1, round(n_noise / 3))


def test_infilling_hides_its_share_by_spans_of_poisson_lengths():
    _, corrupt = of(Infilling(permute_sentences=False))
    assert isinstance(corrupt, Infiller)
    ids, gone, runs = np.arange(1000, 1100), list[int](), list[int]()
    for seed in range(200):
        source, target = corrupt(ids, np.random.default_rng(seed))
        assert target == ids.tolist()
        assert len(source) <= len(ids)
        kept = [token for token in source if token != corrupt.mask_id]
        assert kept == sorted(kept)
        gone.append(len(ids) - len(kept))
        runs.append(len(source) - len(kept))
    assert set(gone) == {30}
    assert np.mean(runs) == pytest.approx(10.8, abs=0.5), "30 / 3, and the spans of length 0"


def test_sentences_change_places_and_stay_whole():
    tokenizer, corrupt = of(Infilling())
    assert isinstance(corrupt, Infiller)
    ids = np.array(tokenizer.encode(TEXTS[0]))
    found = {tokenizer.decode(corrupt.permuted(ids, np.random.default_rng(seed)).tolist()) for seed in range(30)}
    assert len(found) == 6
    assert "four five! one two three. six seven eight nine ten" in found


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_shortest_texts_are_corrupted_too(n: int):
    _, corrupt = of(Infilling())
    for seed in range(20):
        source, target = corrupt(np.arange(1000, 1000 + n), np.random.default_rng(seed))
        assert 1 <= len(source) <= n
        assert target == list(range(1000, 1000 + n))


def test_a_tokenizer_without_the_tokens_is_told():
    bare = Tokenizer.train(TEXTS, Words())
    with pytest.raises(UserError, match="expected sentinels such as <extra_id_0>, got none; try data"):
        corruptor(Spans(), bare)
    with pytest.raises(UserError, match="expected mask_token in tokenizer_config"):
        corruptor(Infilling(), bare)
    _, corrupt = of(Spans(share=0.5, mean_length=1.0))
    with pytest.raises(UserError, match=r"^data\.length: expected at most 99 spans in a text, .* got 150; lower it"):
        corrupt.sizes(np.array([300]))
