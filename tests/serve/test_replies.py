"""What clients read of tokens: their texts, where they begin, and which are the likeliest."""

import pytest

from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import BPE, ByteBPE, TokenizerConfig, Unigram, WordPiece
from clearhead.serve.replies import ReplyFormat
from clearhead.serve.texts import Prompt, ScoredToken, Update
from clearhead.text.detokenizer import UNFINISHED
from clearhead.text.tokenizers import Tokenizer

TEXT = "the keys to the cabinet are on the table"


def reply_of(tokenizer: Tokenizer, *, chats: bool = False) -> ReplyFormat:
    return ReplyFormat("model", tokenizer, [Prompt([1], GenerationConfig(), likeliest=2)], chats)


@pytest.mark.parametrize(
    "kind",
    [ByteBPE(vocab_size=300), BPE(vocab_size=120), WordPiece(vocab_size=120), Unigram(vocab_size=80)],
    ids=lambda kind: kind.kind,
)
def test_the_tokens_of_a_text_joined_are_the_text(kind: TokenizerConfig):
    tokenizer = Tokenizer.train([TEXT] * 4, kind)
    reply, ids = reply_of(tokenizer), tokenizer.encode(TEXT)
    names = [reply.named(token) for token in ids]
    assert "".join(names).strip() == TEXT
    assert any(name.startswith(" ") for name in names[1:])
    assert reply.named(tokenizer.need("eos")).strip(), "special tokens have names too"


def test_of_two_tokens_of_one_text_the_likelier_is_shown():
    tokenizer = Tokenizer.train([TEXT, "日本"] * 4, ByteBPE(vocab_size=300))
    reply = reply_of(tokenizer)
    first, other = tokenizer.encode("日")[:2]
    assert reply.named(first) == reply.named(other) == UNFINISHED
    token = ScoredToken(first, 0, -0.5, [(first, -0.5), (other, -1.5)])
    choice = reply.choice(Update(0, "", [token], "length", 1))
    assert choice["logprobs"]["top_logprobs"] == [{UNFINISHED: -0.5}]  # pyrefly: ignore[bad-index, unsupported-operation]


@pytest.mark.parametrize("chats", [False, True])
def test_a_prompt_is_counted_once_however_many_texts_follow_it(chats: bool):
    config, tokenizer = GenerationConfig(), Tokenizer.train([TEXT], ByteBPE(vocab_size=300))
    prompts = [Prompt([1] * n, config, number=i, n=2) for i, n in enumerate((40, 20))]
    reply = ReplyFormat("model", tokenizer, prompts, chats)
    for choice, (n_written, n_known) in enumerate([(3, 32), (4, 32), (1, 16), (2, 16)]):
        reply.choice(Update(choice, "", n_written=1, n_known=n_known))
        reply.choice(Update(choice, "", n_written=n_written, n_known=n_known, reason="length"))
    assert reply.usage() == {
        "prompt_tokens": 60,
        "completion_tokens": 10,
        "total_tokens": 70,
        "prompt_tokens_details": {"cached_tokens": 48},
    }


def test_a_part_of_a_character_has_no_bytes_of_its_own():
    tokenizer = Tokenizer.train([TEXT], ByteBPE(vocab_size=300))
    reply = reply_of(tokenizer, chats=True)
    part, whole = tokenizer.encode("日")[0], tokenizer.encode("k")[0]
    assert reply.scored(part, -1.0)["bytes"] is None
    assert reply.scored(whole, -1.0)["bytes"] == [*reply.named(whole).encode()]
