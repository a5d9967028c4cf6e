"""Question answering: losses against a plain computation, windows, answers, mistakes."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from clearhead.api import load
from clearhead.cli import main
from clearhead.errors import UserError
from clearhead.recipe.data import SquadFiles
from clearhead.recipe.tokenizers import Words
from clearhead.tasks.question_answering.data import (
    Answer,
    Question,
    QuestionData,
    Window,
    Windows,
    exact,
    f1,
    read_questions,
)
from clearhead.tasks.question_answering.task import (
    MOST_TOKENS,
    QuestionAnswering,
    best_of,
    label_of,
    logits_of,
    with_pairs,
)
from clearhead.tasks.registry import suitable
from clearhead.text.tokenizers import Tokenizer
from tests.files import put
from tests.tasks.small import begin, check_refused, network_of, tables_of, trained, write_rows

KINDS = {"animal": "cat dog horse mouse".split(), "fruit": "apple pear plum cherry".split()}


def rows() -> list[dict[str, Any]]:
    """A context with an animal and a fruit, and questions for both; some ask for a tool, which is not there."""
    found: list[dict[str, Any]] = []
    for i, animal in enumerate(KINDS["animal"]):
        for j, fruit in enumerate(KINDS["fruit"]):
            context = f"the {animal} ate the {fruit} ." if (i + j) % 2 else f"a {fruit} fell on the {animal} ."
            found += [
                {"question": "which animal ?", "context": context, "answer": animal},
                {"question": "which fruit ?", "context": context, "answer": fruit},
                {"question": "which tool ?", "context": context, "answer": ""},
            ]
    return found


def squad(table: list[dict[str, Any]]) -> dict[str, Any]:
    def qa(row: dict[str, Any]) -> dict[str, Any]:
        text = row["answer"]
        answers = [{"text": text, "answer_start": row["context"].index(text)}] if text else []
        return {"id": "x", "question": row["question"], "answers": answers, "is_impossible": not text}

    return {"version": "v2.0", "data": [{"paragraphs": [{"context": r["context"], "qas": [qa(r)]} for r in table]}]}


def read(name: str) -> list[Question]:
    source = SquadFiles(paths=(Path(name),))
    return read_questions(source, QuestionData(train=source))


def task_of(*, limit: int = 64, packed: bool = True) -> QuestionAnswering:
    table = rows()[::2]
    for i, row in enumerate(table):
        row["question"] += " now" * (i % 3)
    questions = [
        Question(row["question"], row["context"], answers, f"x:{i}")
        for i, row in enumerate(table)
        for answers in [(Answer(row["answer"], row["context"].index(row["answer"])),) if row["answer"] else ()]
    ]
    texts = [text for row in table for text in (row["question"], row["context"])]
    tokenizer = with_pairs(Tokenizer.train(texts, Words()))
    task = QuestionAnswering(tokenizer, limit=limit, overlap=2, max_tokens=96, packed=packed)
    task.train = task.valid = task.encode(questions)
    return task


def task_of_one_length() -> QuestionAnswering:
    """With windows of one length in a batch, since the loss of the reference library counts padding too."""
    task = task_of()
    lengths = task.train.inputs.lengths
    same = [[i for i, one in enumerate(lengths) if one == length] for length in sorted(set(lengths))]
    vars(task)["plan"] = lambda **_: same
    return task


def tables(name: str = "train.json", **data: Any) -> dict[str, Any]:
    source = {"kind": "squad", "paths": name}
    return tables_of("question_answering", source, data={"valid": source, **data})


@pytest.fixture(autouse=True)
def _data(in_a_folder: None) -> None:
    put("train.json", json.dumps(squad(rows())))


# --- the loss -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(("limit", "smoothing"), [(64, 0.0), (64, 0.1), (10, 0.0)])
def test_the_loss_is_that_of_each_window_alone(limit: int, smoothing: float, packed: bool):
    task = task_of(limit=limit, packed=packed)
    network, expected = network_of(task), 0.0
    for window in task.train.inputs.parts:
        logits = network(torch.tensor([window.ids]))[0]
        both = zip(logits.T, label_of(window, task.train), strict=True)
        expected += (
            sum(F.cross_entropy(row[None], torch.tensor([at]), label_smoothing=smoothing).item() for row, at in both)
            / 2
        )
    found = n_windows = 0
    for examples in task.plan(seed=0, epoch=0):
        loss, n = task.loss(network, task.collate(examples), smoothing=smoothing)
        found, n_windows = found + loss.item(), n_windows + n
    assert n_windows == len(task.train.inputs.parts)
    assert (n_windows > len(task.train.examples)) == (limit == 10)
    assert found == pytest.approx(expected, rel=1e-9)


# --- windows and scores -------------------------------------------------------------------------------------------


def test_windows_cover_the_context_and_overlap():
    tokenizer = with_pairs(Tokenizer.train(["a b c d e f g h i j k l m n o p q r s t"], Words()))
    context = "a b c d e f g h i j k l m n o p q r s t"
    data = Windows.of([("a b", context), ("c", "d e")], tokenizer, limit=12, overlap=3)
    first = [one for one in data.parts if one.example == 0]
    assert len(data.parts) - len(first) == 1
    texts = [context[one.places[0][0] : one.places[-1][1]] for one in first]
    assert texts[0].startswith("a b") and texts[-1].endswith("s t")  # noqa: PT018
    assert all(len(one.ids) <= 12 for one in first)
    for before, after in pairwise(first):
        assert before.places[-3:] == after.places[:3]
    held = [one.cells(Answer("j k", context.index("j k"))) for one in first]
    window, cells = next((one, found) for one, found in zip(first, held, strict=True) if found)
    assert tokenizer.decode(window.ids[cells[0] : cells[1] + 1]).split() == ["j", "k"]
    assert None in held, "a window without all of it does not hold it"


def test_answers_are_compared_by_the_rule_of_squad():
    assert exact("The  Cat!", ["a cat"]) == 1.0
    assert exact("", []) == exact("the", [""]) == 1.0
    assert exact("cat", []) == f1("cat", []) == f1("", ["cat"]) == 0.0
    assert f1("the big black cat", ["black cat", "dog"]) == pytest.approx(0.8)


# --- a run --------------------------------------------------------------------------------------------------------


def test_from_a_file_to_answers(capsys):
    line = "question_answering --data train.json --valid train.json --epochs 32 --tokenizer.kind words"
    line += " --training.optimizer.lr 5e-3 --training.schedule.warmup 5 --training.optimizer.weight_decay 0"
    line += " --training.max_tokens 128 --training.evaluate_every 1000 --model.stacks.n_layers 2"
    figures, lines = trained(line, capsys)
    assert figures["f1"] > 0.9
    for told in (
        "train: 48 questions about 16 contexts; ",
        "answers: 32 questions, 4.4 characters each; 16 without one",
        "labels: 32 of 48 windows hold the answer",
        "48 (100.0%) have a context that is also in train",
        "f1_answered ",
    ):
        assert told in lines
    model = load("run")
    assert model.config.head.kind == "span"
    assert suitable(model.config, where="x") is QuestionAnswering
    main(["predict", "run", "which fruit ?\tthe dog ate the plum .", "which tool ?\tthe cat ate the pear .", "--json"])
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["answer"], first["start"], first["end"]) == ("plum", 16, 20)
    assert (second["answer"], second["start"]) == ("", None)
    assert 0.5 < first["probability"] <= 1.0
    write_rows("more.jsonl", rows()[:6])
    main(["evaluate", "run", "--data", "more.jsonl", "--page", "mistakes.html"])
    assert "<!doctype html>" in Path("mistakes.html").read_text(encoding="utf-8").lower()
    assert capsys.readouterr().out.startswith("f1 ")
    with pytest.raises(SystemExit):
        main(["predict", "run", "which fruit ?"])
    assert "expected question and context with a tab between them, got one text" in capsys.readouterr().err


def test_the_answer_of_several_windows_is_the_best_of_them():
    task = task_of()
    network = network_of(task)
    pair = ("which fruit ?", " ".join(["the cat ate the plum ."] * 4))
    data = Windows.of([pair], task.tokenizer, limit=14, overlap=2)
    logits = logits_of(network, data, task.tokenizer)
    alone = [
        best_of(Windows([one], 1), [rows])[0]
        for one, rows in (
            (type(w)(0, w.ids, w.types, w.start, w.places), r) for w, r in zip(data.parts, logits, strict=True)
        )
    ]
    assert len(alone) > 2
    assert best_of(data, logits)[0].score in {one.score for one in alone}


# --- mistakes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"answer": "owl"},
            "train.jsonl:1: expected an answer that is in its context, got 'owl'; correct or delete it",
        ),
        ({"context": " "}, "train.jsonl:1: expected a context, got an empty text"),
        ({"question": ""}, "train.jsonl:1: expected a question, got an empty text"),
        ({"answer": 3}, "train.jsonl:1: expected an answer as text, or a list of them, got 3"),
    ],
)
def test_a_wrong_row_is_told(change: dict[str, Any], told: str):
    write_rows("train.jsonl", [rows()[0] | change, *rows()])
    with pytest.raises(UserError) as error:
        read("train.jsonl")
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[]", "train.json: expected questions, got none"),
        ('{"data": []}', "train.json: expected questions, got none"),
        (
            '{"data": [{"paragraphs": [{"qas": [{}]}]}]}',
            "train.json: $.data[0].paragraphs[0].qas[0]: expected the field 'answers'",
        ),
        ('{"data": [', "train.json"),
    ],
)
def test_a_file_that_is_none_is_told(text: str, told: str):
    put("train.json", text)
    with pytest.raises(UserError) as error:
        read("train.json")
    assert str(error.value).startswith(told)


def test_an_answer_elsewhere_is_taken_from_the_nearest_place_and_told():
    table = squad(rows())
    qa = table["data"][0]["paragraphs"][0]["qas"][0]
    qa["answers"][0]["answer_start"] += 2
    put("train.json", json.dumps(table))
    _, prepared = begin(tables(), "first")
    assert any("1 answer is not where answer_start says, such as" in line for line in prepared.data.lines())
    qa["answers"][0]["text"] = "owl"
    put("train.json", json.dumps(table))
    place = "train.json: $.data[0].paragraphs[0].qas[0]"
    check_refused(tables(), f"{place}: expected an answer that is in its context, got 'owl'")


@pytest.mark.parametrize("written", ["owl", " owl", "owl  ", "  owl "])
def test_spaces_around_an_answer_do_not_move_it(written: str):
    context = "an owl  met an owl  and an owl  left"
    place = context.index("owl", 5)
    answer = {"text": written, "answer_start": place - written.index("owl")}
    asked = {"question": "who met it ?", "answers": [answer]}
    table = {"data": [{"paragraphs": [{"context": context, "qas": [asked]}]}]}
    put("train.json", json.dumps(table))
    [question] = read("train.json")
    assert [(one.text, one.start) for one in question.answers] == [("owl", place)]
    assert not question.is_moved


def test_training_windows_of_which_none_holds_an_answer_are_told():
    answer = " ".join(["plum"] * 20)
    row = {"question": "which fruit ?", "context": f"the cat ate {answer} .", "answer": answer}
    write_rows("train.jsonl", [row] * 2)
    message = "train.jsonl:1: expected a window that holds an answer, got none"
    check_refused(tables("train.jsonl", max_length=16, overlap=2), message)


N, START = 40, 2


@pytest.mark.parametrize(
    ("first", "lasts", "right"),
    [
        (7, {3: 5.0, 9: 1.0}, 9),  # None ends before it begins,
        (1, {1 + MOST_TOKENS: 5.0, MOST_TOKENS: 1.0}, MOST_TOKENS),  # and none is longer than it may be.
    ],
)
def test_the_best_of_the_spans_that_can_be(first: int, lasts: dict[int, float], right: int):
    logits = np.zeros((START + N, 2))
    logits[0] = -9.0  # no answer
    logits[START + first, 0] = 5.0
    for last, value in lasts.items():
        logits[START + last, 1] = value
    places = [(10 * i, 10 * i + 9) for i in range(N)]
    [found] = best_of(Windows([Window(0, [0] * (START + N), [0] * (START + N), START, places)], 1), [logits])
    assert (found.start, found.end, found.score) == (10 * first, 10 * right + 9, 6.0)
