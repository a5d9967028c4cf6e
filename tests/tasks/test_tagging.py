"""Words with tags: the loss, the cells of words, what is said of sentences, and what users do with a CoNLL file."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from clearhead.api import load
from clearhead.cli import main
from clearhead.config.heads import TaggingHead
from clearhead.recipe.data import HubDataset
from clearhead.recipe.tokenizers import WordPiece
from clearhead.tasks.registry import suitable
from clearhead.tasks.tagging.data import TaggedSentence, read_tagged
from clearhead.tasks.tagging.tags import SCHEMES, Decoder, Span, span_scores, spans_of
from clearhead.tasks.tagging.task import Tagging
from clearhead.text.tokenizers import Tokenizer
from tests.files import put
from tests.tasks.small import begin, check_refused, network_of, tables_of, trained, write_rows

PEOPLE, PLACES, VERBS = "Ann Bob Carl Dora".split(), "Paris Rome Oslo Kyiv".split(), "sees likes left".split()


def sentences() -> list[list[tuple[str, str]]]:
    """A person alone or with a surname, a verb and a place."""
    return [
        [(a, "B-person"), *([("Smith", "I-person")] if i % 2 else []), (verb, "O"), (place, "B-place"), (".", "O")]
        for i, a in enumerate(PEOPLE)
        for verb in VERBS
        for place in PLACES
    ]


def conll(rows: list[list[tuple[str, str]]], between: str = "\t") -> str:
    return "\n".join("".join(f"{word}{between}{tag}\n" for word, tag in sentence) for sentence in rows)


def task_of(*, packed: bool = True, limit: int = 64) -> Tagging:
    rows = sentences()[::3]
    found = [TaggedSentence(*map(tuple, zip(*row, strict=True)), f"x:{i}") for i, row in enumerate(rows)]  # pyrefly: ignore
    tokenizer = Tokenizer.train([one.text for one in found], WordPiece(vocab_size=60))
    tags = ("O", "B-person", "I-person", "B-place")
    task = Tagging(tokenizer, tags=tags, limit=limit, max_tokens=96, packed=packed)
    task.train = task.valid = task.encode(found)
    return task


def tables(**data: Any) -> dict[str, Any]:
    train = {"kind": "tagged", "paths": "train.conll"}
    return tables_of("tagging", train, data=data, tokenizer={"kind": "wordpiece", "vocab_size": 60})


@pytest.fixture(autouse=True)
def _data(in_a_folder: None) -> None:
    put("train.conll", conll(sentences()))


# --- the loss -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [64, 6])
@pytest.mark.parametrize("name", ["classifier", "nano"])
def test_the_loss_is_the_cross_entropy_of_the_first_pieces(name: str, limit: int):
    """Of every word once, also where sentences are read in parts."""
    task = task_of(limit=limit)
    network = network_of(task, name)
    expected = 0.0
    for part in task.train.inputs.parts:
        tags = task.train.examples[part.example].tags[part.start :][: len(part.cells)]
        logits = network(torch.tensor([part.ids]))[0][part.cells]
        expected += F.cross_entropy(
            logits, torch.tensor([task.tags.index(tag) for tag in tags]), reduction="sum"
        ).item()
    found, n_words = 0.0, 0
    for examples in task.plan(seed=0, epoch=0):
        loss, n = task.loss(network, task.collate(examples))
        found, n_words = found + loss.item(), n_words + n
    assert n_words == sum(len(one.words) for one in task.train.examples)
    assert found == pytest.approx(expected, rel=1e-9)
    padded = task_of(packed=False, limit=limit)
    totals = [padded.loss(network, padded.collate(examples))[0].item() for examples in padded.plan(seed=0, epoch=0)]
    assert sum(totals) == pytest.approx(expected, rel=1e-9)


# --- tags ---------------------------------------------------------------------------------------------------------


def test_a_decoded_sequence_is_the_best_valid_one():
    random = np.random.default_rng(0)
    for names in (("O", "B-a", "I-a", "B-b", "I-b"), ("O", "B-a", "I-a", "E-a", "S-a"), ("O", "B-a", "L-a", "U-a")):
        decode = Decoder(names)
        valid = [
            path
            for path in np.ndindex(*[len(names)] * 4)
            if all(
                decode.scheme.follows(a, b)
                for a, b in zip(("O", *(names[i] for i in path)), (*(names[i] for i in path), "O"), strict=True)
            )
        ]
        for _ in range(20):
            shares = random.normal(size=(4, len(names)))
            best = max(valid, key=lambda path: sum(shares[i, tag] for i, tag in enumerate(path)))
            assert tuple(decode(shares)) == best


def test_tags_of_single_words_are_the_likeliest():
    shares = np.random.default_rng(0).normal(size=(5, 3))
    assert [*Decoder(("NOUN", "O", "X"))(shares)] == [*shares.argmax(-1)]
    assert Decoder(("I-a", "O")).scheme == SCHEMES["none"], "no span could begin"


# --- a run --------------------------------------------------------------------------------------------------------


def test_from_a_file_to_predictions(capsys):
    put("dev.conll.gz", gzip.compress(conll(sentences()[::5], between="  ").encode()))
    line = "train.conll --valid dev.conll.gz --epochs 8 --tokenizer.vocab_size 60 --training.optimizer.lr 1e-2"
    line += " --training.schedule.warmup 5 --training.max_tokens 128 --training.evaluate_every 100"
    figures, lines = trained(line, capsys)
    assert figures["span_f1"] == 1.0
    for told in (
        "tags: spans, tagged in BIO",
        "train: 48 sentences, 216 words; 4.5 words each, at most 5; ",
        "labels: 216, 4.5 a sentence",
        "96 spans: person 50.0%, place 50.0%",
        "valid: 10 sentences",
        "10 (100.0%) are also in train, such as",
        "span_f1                1.0000  0 to 1, 95% interval 0.7225 to 1.0000",
        'use it: clearhead tag run "A sentence."',
    ):
        assert told in lines
    model = load("run")
    assert isinstance(model.config.head, TaggingHead)
    assert model.config.head.labels == ("O", "B-person", "I-person", "B-place")
    assert suitable(model.config, where="x") is Tagging
    main(["predict", "run", "Dora  Smith likes Rome.", "."])
    assert capsys.readouterr().out.splitlines() == ["person 0-11 Dora  Smith\tplace 18-22 Rome", ""]
    main(["predict", "run", "Ann left Oslo.", "--json"])
    values = json.loads(capsys.readouterr().out)
    assert values["words"] == ["Ann", "left", "Oslo", "."]
    assert values["tags"] == ["B-person", "O", "B-place", "O"]
    assert [(one["text"], one["label"], one["start"], one["end"]) for one in values["entities"]] == [
        ("Ann", "person", 0, 3),
        ("Oslo", "place", 9, 13),
    ]
    assert all(0.5 < one["probability"] <= 1.0 for one in values["entities"])
    put("other.conll", "Bob B-person\nsees O\nAnn B-place\n")
    main(["evaluate", "run", "--data", "other.conll", "--page", "mistakes.html"])
    assert "<!doctype html>" in Path("mistakes.html").read_text(encoding="utf-8").lower()
    said = capsys.readouterr().out
    assert said.startswith("span_f1                0.5000")
    assert "other.conll:1: Bob sees Ann" in said
    assert "Ann/B-person" in said


def test_single_words_are_tagged_from_tables_and_measured_by_accuracy(capsys):
    kinds = {"O": "OTHER", "B-person": "NAME", "I-person": "NAME", "B-place": "NAME"}
    rows = [{"tokens": [w for w, _ in one], "upos": [kinds[tag] for _, tag in one]} for one in sentences()]
    write_rows("train.jsonl", rows)
    _, lines = trained("tagging --data train.jsonl --steps 2 --tokenizer.vocab_size 60", capsys)
    assert "tags: tags of single words" in lines
    main(["predict", "run", "Ann left."])
    words = [pair.rsplit("/", 1) for pair in capsys.readouterr().out.strip().split(" ")]
    assert [word for word, _ in words] == ["Ann", "left", "."]
    assert {tag for _, tag in words} <= {"NAME", "OTHER"}


def test_long_sentences_are_read_in_parts_and_told():
    run, prepared = begin(tables(max_length=6))
    assert any("sentences of more than 6 tokens, read in parts" in line for line in prepared.data.lines())
    task = run.task
    assert isinstance(task, Tagging)
    assert max(task.train.inputs.lengths) <= 6
    found = task.score(run.network, task.train)
    assert found.value("accuracy") <= 1.0


# --- mistakes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "label", "told"),
    [
        ("", None, "train.conll: expected text, got an empty file"),
        ("a\n", None, "train.conll:1: expected a word and its tag, got one column"),
        ("a\tO\nb\tc\tO\n", None, "train.conll:2: expected 2 columns as in line 1, got 3; mend the line"),
        ("a\tO\nb\tB-x\n", 4, "train.conll:1: expected a column 4, got 2 columns from 0; try another --label"),
        ("a\tO\nb\tB-x\n", "ner", "train.conll:1: expected a column by its number from 0, got 'ner'; try --label 1"),
        ("a\tO\nb\tB-x\n\nc\tx\n", None, "train.conll:4: expected O, B-TYPE, I-TYPE, as BIO has, got x; mend the tag"),
        (
            "a\tO\nb\tS-x\nc\tB-x\nd\tO\n",
            None,
            "train.conll:4: expected a tag that IOBES has after B-x, got O; mend it, or the tags E- and S- elsewhere",
        ),
        ("a\tO\nb\tS-x\n\nc\tI-x\n", None, "train.conll:4: expected a tag that IOBES has after the beginning, got I-x"),
        ("a\tO\nb\tS-x\nc\tU-x\n", None, "train.conll:3: expected O, B-TYPE, E-TYPE, I-TYPE, S-TYPE, as IOBES has"),
        ("a\tO\nb\tO\n", None, "train.conll: expected at least 2 tags, got O; try another --label"),
        ("a\tX\n\nb\tY\n", None, "data.train: expected more sentences, to hold some out, got 2"),
    ],
)
def test_a_wrong_file_is_told_with_its_line(text: str, label: Any, told: str):
    put("train.conll", text)
    check_refused(tables(label=label), told)


def test_a_tag_that_training_does_not_have_is_told_with_its_line():
    put("more.conll", "Ann\tB-person\n\nBob\tB-person\nCo\tB-firm\n")
    message = "more.conll:4: expected a tag of the training data (O, B-person, I-person, B-place), got B-firm; correct"
    check_refused(tables(valid={"kind": "tagged", "paths": "more.conll"}), message)


def test_spans_are_counted_as_the_library_does():
    from nervaluate import Evaluator

    gold = [["O", "B-a", "I-a", "B-b"], ["B-a", "O", "B-b", "I-b"], ["O", "O", "B-a", "I-a"], ["O", "O", "O", "O"]]
    mine = [["O", "B-a", "I-a", "B-a"], ["B-a", "O", "O", "B-b"], ["B-b", "I-b", "B-a", "I-a"], ["O", "B-a", "O", "O"]]
    found = {one.name: one.value for one in span_scores([*map(spans_of, gold)], [*map(spans_of, mine)])}
    theirs = Evaluator(gold, mine, tags=["a", "b"], loader="list").evaluate()["overall"]["strict"]
    assert (found["precision"], found["recall"], found["span_f1"]) == pytest.approx(
        (theirs.precision, theirs.recall, theirs.f1)
    )
    assert span_scores([[Span(label="a", start=0, end=1)]], [[]])[0].value == 0.0


def test_a_dataset_stores_tags_as_numbers_with_names():
    datasets = pytest.importorskip("datasets")
    names = ["O", "B-person", "I-person", "B-place"]
    rows = sentences()
    columns = {
        "tokens": [[w for w, _ in one] for one in rows],
        "ner_tags": [[names.index(t) for _, t in one] for one in rows],
    }
    kind = datasets.Features(
        {"tokens": datasets.List(datasets.Value("string")), "ner_tags": datasets.List(datasets.ClassLabel(names=names))}
    )
    datasets.Dataset.from_dict(columns, features=kind).save_to_disk("saved")
    found = read_tagged(HubDataset(name="saved", text="tokens"), None, None)
    assert [list(zip(one.words, one.tags, strict=True)) for one in found] == rows
    assert found[1].place(2) == "saved:row 1: word 3"
