"""Chat: which tokens are trained, the loss, and what users do with conversations."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from clearhead.api import load
from clearhead.cli import main
from clearhead.errors import UserError
from clearhead.json_text import tabbed
from clearhead.model.loss import IGNORED
from clearhead.recipe.tokenizers import BPE, ByteBPE, TokenizerConfig, Words
from clearhead.tasks.chat import TEMPLATE, Chat, Conversation, Turns, cut_where_rewritten, with_roles, with_template
from clearhead.tasks.registry import suitable
from clearhead.text.tokenizers import Tokenizer
from tests.tasks.small import check_refused, network_of, tables_of, trained, write_rows
from tests.text.test_chat import TEMPLATES
from tests.training.tiny import GENERATION, number_pairs

PAIRS = number_pairs(16)
TEXTS = [*PAIRS.source, *PAIRS.target]


def messages(*contents: str) -> list[dict[str, Any]]:
    """A user and the assistant in turns."""
    return [{"role": ("user", "assistant")[i % 2], "content": content} for i, content in enumerate(contents)]


def conversations() -> list[Conversation]:
    rows = [messages(a, b) for a, b in PAIRS] + [messages("one", "eins", "two", "zwei drei")]
    return [Conversation(tuple(row), f"chats.jsonl:{i}") for i, row in enumerate(rows, start=1)]


def tokenizer_of(config: TokenizerConfig) -> Tokenizer:
    return with_roles(Tokenizer.train(TEXTS, config))


def task_of(*, length: int = 48) -> Chat:
    tokenizer, data = tokenizer_of(Words()), conversations()
    task = Chat(tokenizer, length=length, max_tokens=4 * length, generation=GENERATION)
    task.train = task.valid = task.encode(data)
    return task


def write(name: str, rows: Any) -> str:
    return write_rows(name, ({"messages": row} for row in rows))


def tables(**data: Any) -> dict[str, Any]:
    train = {"kind": "table", "path": "chats.jsonl", "text": "messages"}
    fields = {"data": {"length": 48, **data}, "generation": {"max_new_tokens": 8}}
    return tables_of("chat", train, preset="nano", **fields)


def write_data() -> None:
    write("chats.jsonl", [messages(a, b) for a, b in PAIRS])


@pytest.fixture(autouse=True)
def _data(in_a_folder: None) -> None:
    write_data()


# --- which tokens are trained ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "name", "end"),
    [
        (ByteBPE(vocab_size=300), "default", "<eos>"),
        (BPE(vocab_size=80), "default", "<eos>"),
        (ByteBPE(vocab_size=300), "turns", "<|im_end|>"),
        (ByteBPE(vocab_size=300), "system inside the first instruction", " <eos>"),
    ],
)
def test_the_answers_and_their_ends_are_trained_and_nothing_else(config: TokenizerConfig, name: str, end: str):
    tokenizer = tokenizer_of(config)
    if name != "default":
        tokenizer = tokenizer.changed(tokenizer.library, chat_template=TEMPLATES[name])
    said = messages("one two", "eins zwei", "three", "drei")
    found = Turns.of(Conversation(({"role": "system", "content": "five"}, *said), "x:1"), tokenizer)
    kept = [int(token) for token, is_answer in zip(found.ids, found.is_answer, strict=True) if is_answer]
    text = tokenizer.library.decode(kept, skip_special_tokens=False)
    assert text.replace(" ", "") == f"eins zwei{end}drei{end}".replace(" ", "")


def test_a_prompt_is_read_as_it_was_in_training():
    """What `Model.chat` reads is what comes before the answer."""
    tokenizer = tokenizer_of(ByteBPE(vocab_size=300))
    found = Turns.of(Conversation(tuple(messages("one two", "eins")), "x:1"), tokenizer)
    first = int(found.is_answer.argmax())
    assert tokenizer.decode(found.ids[:first].tolist()) == "\none two\n\n"
    assert tokenizer.decode(found.ids[first:].tolist()) == "eins\n"
    assert with_template(tokenizer) is tokenizer
    bare = with_template(Tokenizer.train(TEXTS, Words()))
    assert (bare.chat_template, bare.vocab_size) == (TEMPLATE, tokenizer_of(Words()).vocab_size - 3)


def test_each_conversation_once_an_epoch_with_the_labels_of_its_answers():
    task = task_of()
    orders = []
    for epoch in range(2):
        plan = task.plan(seed=0, epoch=epoch)
        batches = [task.collate(examples) for examples in plan]
        assert sum(batch.count for batch in batches) == sum(int(one.is_answer.sum()) for one in task.train.turns)
        for batch in batches:
            tokens = batch.inputs[0]
            assert tokens.ids.numel() <= 4 * 48
            ids = tokens.real(tokens.ids).tolist()
            following = [b for a, b in zip(batch.labels[:-1].tolist(), ids[1:], strict=True) if a != IGNORED]
            labels = [a for a in batch.labels[:-1].tolist() if a != IGNORED]
            assert following == labels, "the label of a cell is the next token of its conversation"
        orders.append([list(examples) for examples in plan])
    assert orders[0] != orders[1]
    assert task.evaluate(network_of(task, "nano")).value("loss") > 0


# --- a run -------------------------------------------------------------------------------------------------------


def test_from_conversations_to_answers(capsys):
    write("chats.jsonl", [*(messages(a, b) for a, b in PAIRS), messages("one")])
    line = "chat --data chats.jsonl --epochs 2 --generation.max_new_tokens 6 --tokenizer.vocab_size 300"
    figures, lines = trained(f"{line} --training.max_tokens 512", capsys)
    assert figures.keys() >= {"loss", "perplexity"}
    assert "valid: 1 of 2 conversations" in lines
    assert "1 without a token to train on, left out: chats.jsonl:17" in lines.replace(f"{Path.cwd()}/", "")
    model = load("run")
    assert model.tokenizer.chat_template == TEMPLATE
    main(["predict", "run", "one two"])
    assert capsys.readouterr().out == tabbed("".join(model.chat(messages("one two")))) + "\n"
    main(["evaluate", "run", "--data", write("other.jsonl", [messages("one", "eins")])])
    assert capsys.readouterr().out.startswith("loss ")
    assert suitable(model.config, where="x") is not Chat, "a model without a recipe continues texts"


# --- mistakes ----------------------------------------------------------------------------------------------------

GOOD = [messages(a, b) for a, b in PAIRS]


@pytest.mark.parametrize(
    ("rows", "changes", "told"),
    [
        ([*GOOD, "hello"], {}, 'chats.jsonl:17:messages: expected a list of messages, got "hello"; write {"messages"'),
        ([*GOOD, [{"from": "human"}]], {}, "chats.jsonl:17:messages: message 1: expected text in 'role', got null"),
        (
            [*GOOD, [{"role": "user", "content": 3}]],
            {},
            "chats.jsonl:17:messages: message 1: expected text in 'content'",
        ),
        (GOOD[:4], {}, "data.train: expected more conversations to hold some out, got 4; give data.valid"),
        ([messages(a) for a, _ in PAIRS], {}, "train: expected an answer of the assistant in the first 48 tokens of a"),
        (
            GOOD,
            {"length": 5},
            "train: expected an answer of the assistant in the first 5 tokens of a conversation, got",
        ),
    ],
)
def test_wrong_conversations_are_told_with_their_row(rows: Any, changes: Mapping[str, Any], told: str):
    write("chats.jsonl", rows)
    check_refused(tables(**changes), told)


def test_a_template_that_rewrites_earlier_messages_teaches_one_answer_at_a_time():
    """Like templates that write the reasoning of the last answer alone."""
    tokenizer = tokenizer_of(ByteBPE(vocab_size=300))
    thinking = (
        "{% for m in messages %}<|{{ m.role }}|>{% if loop.last and m.role == 'assistant' %}five {% endif %}"
        "{{ m.content }}<eos>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    tokenizer = tokenizer.changed(tokenizer.library, chat_template=thinking)
    one = Conversation(tuple(messages("one", "eins", "two", "zwei")), "x:1")
    with pytest.raises(UserError, match=r"^x:1: expected a chat template that adds message after message, got"):
        Turns.of(one, tokenizer)
    cut = cut_where_rewritten([one, Conversation(tuple(messages("one")), "x:2")], tokenizer)
    assert [(part.where, len(part.messages)) for part in cut] == [("x:1", 2), ("x:1", 4), ("x:2", 1)]
    for part, said in zip(cut, ("five eins<eos>", "five zwei<eos>", ""), strict=True):
        turns = Turns.of(part, tokenizer)
        assert tokenizer.library.decode(turns.ids[turns.is_answer].tolist(), skip_special_tokens=False) == said
    plain = tokenizer_of(Words())
    assert cut_where_rewritten([one], plain) == [one]
