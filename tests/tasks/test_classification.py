"""Texts with labels: the loss, the batches, and what users do with a table."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from clearhead.api import Model, load
from clearhead.cli import main
from clearhead.config.heads import ClassificationHead, LanguageHead
from clearhead.errors import UserError
from clearhead.pretrained_start import under_head
from clearhead.recipe.tokenizers import Words
from clearhead.tasks.classification.data import LabelledText
from clearhead.tasks.classification.task import Classification
from clearhead.text.tokenizers import Tokenizer
from tests.files import put
from tests.tasks.small import begin, check_refused, losses, network_of, run_of, tables_of, trained

WORDS = {"animal": "cat dog horse mouse", "fruit": "apple pear plum cherry", "tool": "hammer saw file drill"}
PROBLEMS = ("single_label_classification", "multi_label_classification", "regression")


def rows() -> list[tuple[str, str]]:
    """Texts of two words of one kind, which is their label."""
    kinds = {label: words.split() for label, words in WORDS.items()}
    return [(f"the {a} and the {b}", label) for label, words in kinds.items() for a in words for b in words if a != b]


def write_table(path: Path, table: list[tuple[str, str]]) -> Path:
    return put(path, "".join(f"{a},{b}\n" for a, b in [("body", "kind"), *table]))


def tables(**training: Any) -> dict[str, Any]:
    source = {"kind": "table", "path": "table.csv", "header": True, "text": "body"}
    return tables_of("classification", source, data={"label": "kind"}, training=training)


@pytest.fixture(autouse=True)
def _data(in_a_folder: None) -> None:
    write_table(Path("table.csv"), rows())


def task_of(problem_type: Any = PROBLEMS[0], tokenizer: Tokenizer | None = None, **about: Any) -> Classification:
    texts = [text for text, _ in rows()] + ["the cat", "a long text of the apple and the pear and the plum"]
    tokenizer = tokenizer or Tokenizer.train(texts, Words())
    values: Mapping[str, Any] = {
        PROBLEMS[0]: lambda i: (("a", "b", "c")[i % 3],),
        PROBLEMS[1]: lambda i: tuple(name for k, name in enumerate("abc") if i >> k & 1),
        PROBLEMS[2]: lambda i: (str(i / 4),),
    }
    examples = [LabelledText((text,), values[problem_type](i), f"x:{i}") for i, text in enumerate(texts)]
    labels = ("grade",) if problem_type == "regression" else ("a", "b", "c")
    task = Classification(tokenizer, labels=labels, problem_type=problem_type, limit=64, max_tokens=96, **about)
    task.train = task.valid = task.encode(examples)
    return task


# --- the loss ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", ["classifier", "bert-base", "nano"])
def test_the_loss_is_the_cross_entropy_of_each_text_alone(name: str, smoothing: float):
    task = task_of("single_label_classification")
    network = network_of(task, name)
    expected = 0.0
    for ids, example in zip(task.train.inputs.ids, task.train.examples, strict=True):
        target = torch.tensor([task.labels.index(example.labels[0])])
        expected += F.cross_entropy(network(torch.tensor([ids])), target, label_smoothing=smoothing).item()
    found = count = 0
    for examples in task.plan(seed=0, epoch=0):
        loss, n = task.loss(network, task.collate(examples), smoothing=smoothing)
        found, count = found + loss.item(), count + n
    assert count == len(task.train.examples)
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("problem_type", PROBLEMS)
def test_scores_do_not_depend_on_the_other_texts_of_a_batch(problem_type: Any):
    task = task_of(problem_type)
    network = network_of(task)
    outputs = task.evaluate(network).outputs
    for i in (0, 5, len(outputs) - 1):
        one = task.train.examples[i : i + 1]
        assert task.score(network, task.encode(one)).outputs == outputs[i : i + 1]


# --- a run -------------------------------------------------------------------------------------------------------


def test_from_a_table_to_predictions(capsys: pytest.CaptureFixture[str]):
    """What is guessed is said; the labels are in the saved model; every command works with it."""
    line = "table.csv --seed 1 --training.epochs 12 --training.max_tokens 64 --training.optimizer.lr 1e-2"
    figures, lines = trained(f"{line} --training.schedule.warmup 5", capsys)
    assert figures["accuracy"] > 0.5
    assert figures["held_out"].keys() >= {"accuracy", "macro_f1", "loss", "confusion"}
    for told in (
        "body    text   by its name; ",
        "kind    label  the only one that recurs; 3 classes",
        "valid: 3 of 3 examples",
        "labels: animal 33.3%, fruit 33.3%, tool 33.3%",
        "95% interval",
        'use it: clearhead classify run "A text."',
    ):
        assert told in lines
    model = load("run")
    head = model.config.head
    assert isinstance(head, ClassificationHead)
    assert (head.labels, head.problem_type) == (("animal", "fruit", "tool"), "single_label_classification")
    texts = ["the cat and the dog", "the saw and the drill and the file"]
    main(["predict", "run", *texts])
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == [best[0][0] for best in model.classify(texts)]
    assert [float(line[1]) for line in lines] == pytest.approx([best[0][1] for best in model.classify(texts)], abs=1e-4)
    write_table(Path("other.csv"), [("the cat and the mouse", "animal"), ("the pear and the plum", "tool")])
    main(["evaluate", "run", "--data", "other.csv"])
    said = capsys.readouterr().out
    assert said.startswith("accuracy ")
    assert "worst mistakes:" in said
    assert "other.csv:3: the pear and the plum" in said


def test_a_checkpoint_gets_a_new_head_unless_its_labels_are_the_same():
    run_of(tables(), "first")
    before = dict(load("first").network.named_parameters())
    again = tables() | {"model": {"start": "first"}}
    again.pop("tokenizer")
    same = dict(begin(again, "same")[0].network.named_parameters())
    torch.testing.assert_close(same["head.output.weight"].detach(), before["head.output.weight"].detach())
    write_table(Path("table.csv"), [row for row in rows() if row[1] != "tool"])
    other = dict(begin(again, "other")[0].network.named_parameters())
    assert other["head.output.weight"].shape == (2, 32)
    at = "encoder.blocks.0.attn.q.weight"
    torch.testing.assert_close(other[at].detach(), before[at].detach())


def test_several_labels_are_learnt_too():
    several = [(text, label if i % 2 else f"{label}|odd") for i, (text, label) in enumerate(rows())]
    write_table(Path("table.csv"), several)
    given = tables(steps=40, optimizer={"kind": "adamw", "lr": 1e-2}, schedule={"kind": "constant"}, save_every=None)
    given["data"]["problem_type"] = "multi_label_classification"
    found = losses(begin(given)[0])
    assert found[40] < 0.7 * found[1]
    assert {label for label, _ in load("run").classify(["the cat"])[0]} == {"animal", "fruit", "odd", "tool"}


@pytest.mark.parametrize("name", ["classifier", "bert-base"])
def test_two_texts_have_one_label_together(name: str, capsys: pytest.CaptureFixture[str]):
    """A tokenizer that is trained here puts its end token between them."""
    words = [word for some in WORDS.values() for word in some.split()]
    rows = [("one", "two", "way"), *((a, b, "up" if a < b else "down") for a in words for b in words[::2])]
    put("table.csv", "".join(",".join(row) + "\n" for row in rows))
    line = "table.csv --text one --text-pair two --label way --epochs 1 --tokenizer.kind words"
    _, lines = trained(f"{line} --model.preset {name}", capsys)
    assert "tokens each, at most 3" in lines
    model = load("run")
    main(["predict", "run", "cat\tdog", "cat\tpear"])
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    for (label, share), other in zip(lines, ("dog", "pear"), strict=True):
        shares = model.logits("cat", other).softmax(-1)
        assert label == model.config.head.model_dump()["labels"][int(shares.argmax())]
        assert float(share) == pytest.approx(shares.max().item(), abs=1e-4)


# --- mistakes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "changes", "told"),
    [
        ("body,kind\na b,x\nc d,\n", {}, "table.csv:3: expected a label in column 'kind', got none; fill it in"),
        ("body,kind\na b,x\nc d,NaN\n", {}, "table.csv:3: expected a label in column 'kind', got NaN; fill it in"),
        ("body;kind\na b;x\n", {}, "table.csv:1: expected a column 'body', got none; try body;kind"),
        ("text,kind\na b,x\n", {}, "table.csv:1: expected a column 'body', got none; "),
        ("body,kind\na b,x\nc d,x\n", {}, "table.csv: column 'kind': expected at least 2 labels, got"),
        (
            "body,kind\na b,1\nc d,u\n",
            {"problem_type": "regression"},
            "table.csv:3: expected a number in column 'kind'",
        ),
        ("body,kind\na,x\nb,y\n", {}, "data.train: expected more texts to hold some of each label out, got 2"),
    ],
)
def test_a_wrong_table_is_told_with_its_row(table: str, changes: Mapping[str, Any], told: str):
    put("table.csv", table)
    given = tables()
    given["data"] |= changes
    check_refused(given, told)


def test_a_label_that_training_does_not_have_is_told_with_its_row():
    write_table(Path("more.csv"), [("the cat", "animal"), ("the sun", "star")])
    given = tables()
    given["data"]["valid"] = given["data"]["train"] | {"path": "more.csv"}
    check_refused(given, "more.csv:3: expected a label of the training data (animal, fruit, tool)")


def test_a_model_without_labels_is_told():
    task = task_of("single_label_classification")
    writer = under_head(network_of(task, "nano"), LanguageHead(), seed=0)
    with pytest.raises(UserError, match=r"^model: expected a classification head, got language; try clearhead train"):
        list(Classification.predict(Model(writer, task.tokenizer), ["a"]))
