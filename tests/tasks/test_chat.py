"""Chat: which tokens are trained, the loss, and what users do with conversations."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.api import Model, load
from clearhead.checkpoints.families import preset
from clearhead.cli import main
from clearhead.config import ModelConfig
from clearhead.errors import UserError
from clearhead.json_text import tabbed
from clearhead.model import Transformer
from clearhead.model.loss import IGNORED
from clearhead.recipe.tokenizers import BPE, ByteBPE, TokenizerConfig, Words
from clearhead.runs import start
from clearhead.tasks.chat.data import TEMPLATE, Conversation, Turns, cut_where_rewritten, with_roles, with_template
from clearhead.tasks.chat.task import Chat
from clearhead.tasks.registry import suitable, validate
from clearhead.tasks.task import Batch
from clearhead.text.tokenizers import Tokenizer
from tests.tasks.reference import UPDATES, require_equal_updates
from tests.tasks.updates import check_resumed
from tests.text.test_chat import TEMPLATES
from tests.training.tiny import GENERATION, number_pairs

SMALL = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 32, "dropout": 0.0}
PAIRS = number_pairs(16)
TEXTS = [*PAIRS.source, *PAIRS.target]


def messages(*contents: str) -> list[dict[str, Any]]:
    """A user and the assistant in turns."""
    return [{"role": ("user", "assistant")[i % 2], "content": content} for i, content in enumerate(contents)]


def conversations() -> list[Conversation]:
    rows = [messages(a, b) for a, b in PAIRS] + [messages("one", "eins", "two", "zwei drei")]
    return [Conversation(tuple(row), f"chats.jsonl:{i}") for i, row in enumerate(rows, start=1)]


def write(name: str, rows: list[list[dict[str, Any]]]) -> str:
    Path(name).write_text("".join(json.dumps({"messages": row}) + "\n" for row in rows), encoding="utf-8")
    return name


def tokenizer_of(config: TokenizerConfig) -> Tokenizer:
    return with_roles(Tokenizer.train(TEXTS, config))


def task_of(*, length: int = 48) -> Chat:
    tokenizer, data = tokenizer_of(Words()), conversations()
    task = Chat(tokenizer, length=length, max_tokens=4 * length, generation=GENERATION)
    task.train = task.valid = task.encode(data)
    return task


def network_of(task: Chat, name: str = "nano") -> Transformer:
    config = preset(name).model_dump()
    inputs = config["decoder"]["input"] | {"vocab_size": task.tokenizer.vocab_size}
    config["decoder"] |= SMALL | {"attn_dropout": 0.0, "embed_dropout": 0.0, "input": inputs}
    torch.manual_seed(0)
    return Transformer(task.fit(ModelConfig.model_validate(config)))


def tables(**training: Any) -> dict[str, Any]:
    settings = {"precision": "fp32", "matmul_precision": "highest", "max_tokens": 96, "device": "cpu", "steps": 6}
    return {
        "task": "chat",
        "data": {"train": {"kind": "table", "path": "chats.jsonl", "text": "messages"}, "length": 48},
        "tokenizer": {"kind": "words"},
        "model": {"preset": "nano", "stacks": SMALL},
        "training": {**settings, "save_every": 3, **training},
        "generation": {"max_new_tokens": 8},
    }


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.fsync", lambda _: None)
    write("chats.jsonl", [messages(a, b) for a, b in PAIRS])


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
    assert task.evaluate(network_of(task)).value("loss") > 0


@UPDATES
def test_losses_and_updates_are_those_of_the_other_library(steps: int, tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    task = task_of()
    network = network_of(task, "gpt2")
    folder = Model(network, task.tokenizer).save(tmp_path / "model")
    theirs = transformers.GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")

    def loss_of(model: Any, batch: Batch) -> torch.Tensor:
        (tokens,) = batch.inputs
        assert tokens.documents is not None
        assert tokens.valid is not None
        apart = tokens.documents[:, None, :, None] != tokens.documents[:, None, None, :]
        apart = apart | torch.ones(apart.shape[-2:], dtype=torch.bool).triu(1)
        mask = torch.zeros(apart.shape, dtype=torch.float64).masked_fill(apart, torch.finfo(torch.float64).min)
        logits = model(tokens.ids, attention_mask=mask, position_ids=tokens.positions).logits
        # Its own loss rounds the logits to float32.
        return torch.nn.functional.cross_entropy(logits[tokens.valid], batch.labels)

    require_equal_updates(task, network, theirs, loss_of, steps=steps)


# --- a run -------------------------------------------------------------------------------------------------------


def test_from_conversations_to_answers(capsys: pytest.CaptureFixture[str]):
    write("chats.jsonl", [*(messages(a, b) for a, b in PAIRS), messages("one")])
    changes = " ".join(f"--model.stacks.{name} {value}" for name, value in SMALL.items())
    line = "train chat --data chats.jsonl --out run --precision fp32 --epochs 2 --json --generation.max_new_tokens 6"
    main(f"{line} {changes} --tokenizer.vocab_size 300 --training.max_tokens 512".split())
    said = capsys.readouterr()
    assert json.loads(said.out).keys() >= {"loss", "perplexity"}
    assert "valid: 1 of 2 conversations" in said.err
    assert "1 without a token to train on, left out: chats.jsonl:17" in said.err.replace(f"{Path.cwd()}/", "")
    model = load("run")
    assert model.tokenizer.chat_template == TEMPLATE
    main(["predict", "run", "one two"])
    assert capsys.readouterr().out == tabbed("".join(model.chat(messages("one two")))) + "\n"
    main(["evaluate", "run", "--data", write("other.jsonl", [messages("one", "eins")])])
    assert capsys.readouterr().out.startswith("loss ")
    assert suitable(model.config, where="x") is not Chat, "a model without a recipe continues texts"


def test_resumed_as_if_never_stopped():
    check_resumed(tables())


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
        (GOOD[:4], {}, "data.train: expected at least 10 conversations to hold some out, got 4; give data.valid"),
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
    given = tables()
    given["data"] |= changes
    with pytest.raises(UserError) as error:
        start(validate(given, where="x"), Path("run"))
    assert told in str(error.value)
    assert not Path("run").exists()


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


def test_a_network_that_cannot_do_it_is_told():
    with pytest.raises(UserError, match=r"^model: expected a decoder alone to answer, got an encoder too; try preset"):
        task_of().fit(preset("demo"))
