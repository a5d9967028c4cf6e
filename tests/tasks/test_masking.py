from itertools import pairwise

import numpy as np
import pytest

from clearhead.errors import UserError
from clearhead.recipe.tokenizers import BPE, ByteBPE, Characters, TokenizerConfig, WordPiece, Words
from clearhead.tasks.masked_lm import Masking
from clearhead.text.special_tokens import continuing, special_ids, with_mask
from clearhead.text.tokenizers import Tokenizer

TEXTS = ["unhappy players are playing, and playful cats play on", "the cat's player unplayed 42 games"] * 3
KINDS = [WordPiece(vocab_size=60), BPE(vocab_size=60), ByteBPE(vocab_size=290), Words(), Characters()]


def tokenizer_of(config: TokenizerConfig) -> Tokenizer:
    return with_mask(Tokenizer.train(TEXTS, config))


def masking_of(config: TokenizerConfig, *, share: float = 0.15, whole_words: bool = False) -> Masking:
    return Masking.of(tokenizer_of(config), share=share, whole_words=whole_words)


@pytest.mark.parametrize("config", KINDS, ids=lambda config: config.kind)
def test_a_mask_in_a_text_is_one_token_and_the_rest_stays(config: TokenizerConfig):
    tokenizer = tokenizer_of(config)
    bare = tokenizer.encode("the cat play", special_tokens=True)
    cat = tokenizer.encode("the cat", special_tokens=True)[len(tokenizer.encode("the", special_tokens=True)) - 1 : -1]
    found = tokenizer.encode("the <mask> play", special_tokens=True)
    assert found.count(tokenizer.need("mask")) == 1
    if config.kind != "characters":
        whole = " ".join(map(str, bare)).replace(" ".join(map(str, cat)), str(tokenizer.mask_id))
        assert " ".join(map(str, found)) == whole
    again = Tokenizer.from_files(tokenizer.to_files())
    assert again.encode("the <mask> play", special_tokens=True) == found
    assert again.mask_id == tokenizer.mask_id == tokenizer.vocab_size - 1


@pytest.mark.parametrize("config", KINDS, ids=lambda config: config.kind)
def test_words_are_those_between_spaces_and_punctuation(config: TokenizerConfig):
    tokenizer = tokenizer_of(config)
    goes_on, ids = continuing(tokenizer), tokenizer.encode("unhappy players, cats")
    words = [0]
    for before, token in pairwise(ids):
        words.append(words[-1] + (not goes_on[token] or not tokenizer.decode([before]).strip()))
    texts = [tokenizer.decode([i for i, w in zip(ids, words, strict=True) if w == word]) for word in sorted({*words})]
    assert [text.replace("##", "").strip() for text in texts if text.strip()] == ["unhappy", "players", ",", "cats"]


@pytest.mark.parametrize("share", [0.15, 0.3])
@pytest.mark.parametrize("whole_words", [False, True])
def test_the_share_is_chosen_and_special_tokens_never(share: float, whole_words: bool):
    tokenizer = tokenizer_of(WordPiece(vocab_size=60))
    masking = Masking.of(tokenizer, share=share, whole_words=whole_words)
    ids = np.array([tokenizer.need("bos"), *tokenizer.encode(" ".join(TEXTS)), tokenizer.need("eos")])
    special = np.isin(ids, sorted(special_ids(tokenizer)))
    counts, changed = np.zeros(len(ids)), list[np.ndarray]()
    for seed in range(400):
        read, chosen = masking(ids, np.random.default_rng(seed))
        assert not (chosen & special).any()
        assert (read == ids)[~chosen].all()
        if whole_words:
            goes_on = continuing(tokenizer)[ids]
            assert (chosen[1:] == chosen[:-1])[goes_on[1:] & ~special[:-1]].all()
        else:
            assert chosen.sum() == round(share * (~special).sum())
        counts += chosen
        changed.append(np.where(read == masking.mask_id, 0, np.where(read == ids, 2, 1))[chosen])
    assert counts.sum() / 400 / (~special).sum() == pytest.approx(share, rel=0.05)
    assert counts[~special].min() > 0, "every token is chosen at some time"
    shares = np.bincount(np.concatenate(changed), minlength=3) / sum(map(len, changed))
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.02)


def test_one_token_is_chosen_of_the_shortest_text_and_none_where_all_are_special():
    masking = masking_of(Words())
    random = np.random.default_rng(0)
    assert masking.chosen(np.array([2, 5, 3]), random).tolist() == [False, True, False]
    assert not masking.chosen(np.array([2, 1, 3]), random).any()


def test_a_tokenizer_without_a_mask_token_is_told():
    with pytest.raises(UserError, match=r"expected mask_token in tokenizer_config\.json, got none"):
        Masking.of(Tokenizer.train(TEXTS, Words()), share=0.15, whole_words=False)
