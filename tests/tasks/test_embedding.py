"""Sentence vectors: the contrastive loss, its false negatives, and a whole run."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.api import load
from clearhead.api.sentences import Sentences
from clearhead.cli import main
from clearhead.errors import UserError
from clearhead.recipe.tokenizers import WordPiece
from clearhead.tasks.embedding import Embedding, Group, contrast, retrieval, same
from clearhead.tasks.registry import suitable
from clearhead.text.tokenizers import Tokenizer
from tests.tasks.small import SMALL, begin, check_refused, check_resumed, losses, network_of, tables_of

KINDS = {"animal": "cat dog horse mouse".split(), "act": "runs sleeps eats jumps".split()}
TRIPLES = [
    (f"the {a} {b}", f"{b} , that {a}", f"{b} , that {KINDS['animal'][(i + 1) % 4]}")
    for i, a in enumerate(KINDS["animal"])
    for b in KINDS["act"]
]


def reference(vectors: Sequence[Tensor], *, scale: float = 20.0, symmetric: bool = False) -> Tensor:
    """MultipleNegativesRankingLoss: the mean cross-entropy of scale * cos, one text at a time (Henderson et al. 2017).

    `vectors` are those of the anchors, the positives and perhaps the negatives.
    """
    anchors, candidates = vectors[0], torch.cat([*vectors[1:]])
    rows = [F.cosine_similarity(anchor[None], candidates) * scale for anchor in anchors]
    forward = [-row.log_softmax(0)[i] for i, row in enumerate(rows)]
    if not symmetric:
        return torch.stack(forward).mean()
    columns = [F.cosine_similarity(positive[None], anchors) * scale for positive in vectors[1]]
    backward = [-column.log_softmax(0)[i] for i, column in enumerate(columns)]
    return (torch.stack(forward).mean() + torch.stack(backward).mean()) / 2


def task_of(groups: Sequence[tuple[str, ...]], **settings: Any) -> Embedding:
    tokenizer = Tokenizer.train([text for one in TRIPLES for text in one], WordPiece(lowercase=True))
    task = Embedding(tokenizer, batch_size=4, limit=64, **settings)
    task.train = task.valid = task.encode([Group(texts, f"x:{i}") for i, texts in enumerate(groups)])
    return task


# --- the loss ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("n_texts", [2, 3])
def test_the_loss_is_the_ranking_loss_of_the_other_library(n_texts: int, symmetric: bool):
    vectors = [torch.randn(5, 7, dtype=torch.float64) for _ in range(n_texts)]
    masked = same([tuple(f"text {i} {k}" for k in range(n_texts)) for i in range(5)])
    expected = reference(vectors, symmetric=symmetric).item()
    assert contrast(torch.cat(vectors), masked, 1 / 20, symmetric=symmetric).item() / 5 == pytest.approx(
        expected, rel=1e-9
    )


def test_what_is_no_negative_for_an_anchor():
    """Its own positive, equal texts, the anchor itself, and the positive of an equal anchor."""
    groups = [("a", "p", "n"), ("b", "p", "a"), ("a", "q", "p"), ("c", "b", "m")]
    found = same(groups)
    # Columns: p p q b, the positives, then n a p m, the negatives.
    assert found.tolist() == [
        [True, True, True, False, False, True, True, False],
        [True, True, False, True, False, False, True, False],
        [True, False, True, False, False, True, False, False],
        [False, False, False, True, False, False, False, False],
    ]


def test_a_false_negative_counts_as_if_it_were_not_there():
    vectors = torch.randn(6, 7, dtype=torch.float64)
    groups = [("a", "p"), ("b", "p"), ("c", "q")]
    found = contrast(vectors, same(groups), 0.05, symmetric=False).item()
    scores = F.normalize(vectors[:3], dim=-1) @ F.normalize(vectors[3:], dim=-1).mT / 0.05
    kept = [[0, 2], [1, 2], [0, 1, 2]]
    expected = sum((scores[i][rows].logsumexp(0) - scores[i, i]).item() for i, rows in enumerate(kept))
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("name", "pooling"), [("classifier", "mean"), ("bert-base", "cls"), ("nano", "lasttoken")])
def test_the_vectors_of_a_batch_are_those_of_each_text_alone(name: str, pooling: Any):
    task = task_of(TRIPLES, pooling=pooling)
    network = network_of(task, name)
    batch = task.collate([0, 3, 9])
    loss, n = task.loss(network, batch)

    def alone(ids: Sequence[int]) -> Tensor:
        states = network(torch.tensor([ids]))[0]
        return {"mean": states.mean(0), "cls": states[0], "lasttoken": states[-1]}[pooling]

    vectors = [torch.stack([alone(task.train.ids[i][k]) for i in (0, 3, 9)]) for k in range(3)]
    assert n == 3
    assert loss.item() / n == pytest.approx(reference(vectors).item(), rel=1e-9)


# --- scores ------------------------------------------------------------------------------------------------------


def test_the_rank_of_each_positive_among_all():
    positives = torch.eye(4)
    texts = [("a", "p"), ("b", "q"), ("c", "r"), ("d", "q")]
    anchors = F.normalize(torch.tensor([[2.0, 1, 0, 0], [0, 1, 0, 2], [3, 2, 1, 0], [0, 2, 0, 1]]), dim=-1)
    found = retrieval(anchors, positives, texts, 0.05)
    assert found.value("mrr") == pytest.approx((1 + 1 + 1 / 3 + 1) / 4)
    assert found.value("accuracy") == 0.75
    assert [(one.source, one.output, one.reference) for one in found.samples] == [("c", "p", "r")]


# --- a run -------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _data(in_a_folder: None) -> None:
    rows = "".join(f'"{a}","{b}","{c}"\n' for a, b, c in TRIPLES)
    Path("pairs.csv").write_text("anchor,positive,negative\n" + rows, encoding="utf-8")
    scored = "".join(f'"{a}","{b}",1\n"{a}","{c}",0\n' for a, b, c in TRIPLES)
    Path("scored.csv").write_text("one,two,score\n" + scored, encoding="utf-8")


def tables(**changes: Any) -> dict[str, Any]:
    pairs = {"kind": "table", "path": "pairs.csv", "header": True, "source": "anchor", "target": "positive"}
    scored = {"kind": "table", "path": "scored.csv", "header": True, "source": "one", "target": "two"}
    data = {"negative": "negative", "scored": scored, "held_out": 0.2, **changes.pop("data", {})}
    training = {"evaluate_every": 100, **changes.pop("training", {})}
    given = tables_of("embedding", pairs, data=data, training=training, batch_size=8, **changes)
    given.pop("tokenizer")
    return given


def test_from_a_table_to_vectors_that_the_other_library_opens(capsys):
    steps = {"steps": 40, "optimizer": {"kind": "adamw", "lr": 1e-2}, "schedule": {"kind": "constant"}}
    run, prepared = begin(tables(model={"preset": "bert-base", "stacks": SMALL}, pooling="cls", training=steps))
    assert prepared.data.lines()[1] == "train: 13 of 13 examples, 3.7 tokens a text"
    found = losses(run)
    assert found[40] < 0.5 * found[1]
    model = load("run")
    texts = ["the cat runs", "that dog", "a"]
    main(["predict", "run", *texts, "--json"])
    vectors = torch.tensor([json.loads(line)["vector"] for line in capsys.readouterr().out.splitlines()])
    torch.testing.assert_close(vectors, model.embed(texts), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(vectors[0].norm(), torch.tensor(1.0))
    folder = model.save("saved")
    assert [one["type"].rpartition(".")[2] for one in json.loads((folder / "modules.json").read_bytes())] == [
        *("Transformer", "Pooling", "Normalize")
    ]
    pooling = json.loads((folder / "1_Pooling/config.json").read_bytes())
    assert (pooling["word_embedding_dimension"], pooling["pooling_mode_cls_token"]) == (32, True)
    torch.testing.assert_close(load("saved").embed(texts), model.embed(texts), rtol=1e-5, atol=1e-6)
    main(["evaluate", "run", "--json"])
    assert json.loads(capsys.readouterr().out).keys() == {"spearman", "mrr", "accuracy", "loss"}
    assert suitable(load("saved").config, where="x") is Embedding


def test_resumed_as_if_never_stopped_and_begun_again_from_what_was_saved():
    check_resumed(tables(pooling="max"))
    again = tables(model={"start": "part"})
    _, prepared = begin(again, "again")
    task = prepared.task
    assert isinstance(task, Embedding)
    assert task.pooling == "max"
    assert json.loads(Path("again/recipe.json").read_bytes())["pooling"] is None
    assert load("part").sentences.pooling == "max"


def test_vectors_of_a_real_encoder_without_a_recipe(shared_data: Path, capsys):
    folder = str(shared_data / "checkpoints/all-MiniLM-L6-v2-fp16")
    main(["predict", folder, "A man eats."])
    found = torch.tensor([float(number) for number in capsys.readouterr().out.split()])
    torch.testing.assert_close(found, load(folder).embed(["A man eats."])[0].float(), rtol=1e-3, atol=1e-4)


# --- mistakes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"training": {"label_smoothing": 0.1}}, "training.label_smoothing has no meaning for vectors; leave it out"),
        ({"data": {"train": {"kind": "text", "paths": ["pairs.csv"]}}}, "text: expected pairs of texts, got single"),
        ({"data": {"negative": "no"}}, "pairs.csv:1: expected a column 'no', got none; try"),
        ({"data": {"score": "two"}}, "scored.csv:2: expected a number in column 'two', got"),
    ],
)
def test_a_mistake_is_told_before_training(changes: dict[str, Any], told: str):
    check_refused(tables(**changes), told)


def test_a_sentence_encoder_that_does_more_than_pool_is_told():
    with pytest.raises(UserError, match=r"^model: expected a sentence encoder that only pools, got do_lower_case"):
        _ = Sentences(lowercase=True).pooling
