"""Sentence vectors: the contrastive loss, its false negatives, the updates of the other library, and a whole run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.api import Model, load
from clearhead.api.sentences import Sentences
from clearhead.checkpoints.families import preset
from clearhead.cli import main
from clearhead.config import ModelConfig
from clearhead.config.heads import NoHead
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.recipe.tokenizers import WordPiece
from clearhead.recipe.training import AdamW, Constant, Training
from clearhead.runs import start
from clearhead.tasks.embedding.data import Group, Groups
from clearhead.tasks.embedding.task import Embedding, contrast, retrieval, same
from clearhead.tasks.registry import suitable, validate
from clearhead.text.tokenizers import Tokenizer
from clearhead.training.run import Run
from clearhead.training.train import train
from clearhead.training.update import BatchIterator, update
from tests.tasks.updates import check_resumed
from tests.training.tiny import losses

SMALL = {"d_model": 32, "n_layers": 1, "n_heads": 2, "d_ff": 32, "dropout": 0.0, "attn_dropout": 0.0}
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
    data = Groups.of([Group(texts, f"x:{i}") for i, texts in enumerate(groups)], tokenizer, 64)
    return Embedding(tokenizer, data, data, batch_size=4, **settings)


def network_of(task: Embedding, name: str) -> Transformer:
    config = preset(name).model_dump()
    stack = "encoder" if config["encoder"] else "decoder"
    config[stack] |= SMALL | {"input": config[stack]["input"] | {"vocab_size": task.tokenizer.vocab_size}}
    network = Transformer(task.fit(ModelConfig.model_validate(config))).double()
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.3)
    return network


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
    network = network_of(task, name).eval()
    batch = task.collate([0, 3, 9])
    loss, n = task.loss(network, batch)

    def alone(ids: Sequence[int]) -> Tensor:
        states = network(torch.tensor([ids]))[0]
        return {"mean": states.mean(0), "cls": states[0], "lasttoken": states[-1]}[pooling]

    vectors = [torch.stack([alone(task.train.ids[i][k]) for i in (0, 3, 9)]) for k in range(3)]
    assert n == 3
    assert loss.item() / n == pytest.approx(reference(vectors).item(), rel=1e-9)


@pytest.mark.parametrize("n_updates", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_updates_are_those_of_the_other_library(n_updates: int, tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    task = task_of([one[:2] for one in TRIPLES], symmetric=True)
    ours = network_of(task, "bert-base")
    folder = Model(ours, task.tokenizer).save(tmp_path / "model")
    theirs = transformers.AutoModel.from_pretrained(folder, dtype=torch.float64, add_pooling_layer=False).train()
    training = Training(optimizer=AdamW(lr=1e-3), schedule=Constant(), steps=n_updates, clip=None, precision="fp32")
    run = Run(ours, task, training, None)
    batches, optimizer = (
        BatchIterator(run),
        torch.optim.AdamW(theirs.parameters(), 1e-3, (0.9, 0.98), 1e-9, weight_decay=0.0),
    )
    for _ in range(n_updates):
        batch = batches.next()[0][0]
        (tokens,) = batch.inputs
        mask = torch.ones_like(tokens.ids) if tokens.valid is None else tokens.valid.long()
        states = theirs(tokens.ids, attention_mask=mask).last_hidden_state
        vectors = ((states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)).chunk(2)
        expected = reference(vectors, symmetric=True)
        expected.backward()
        optimizer.step()
        optimizer.zero_grad()
        assert update(run, [(batch, True)], 1.0)[0] == pytest.approx(expected.item(), rel=1e-9)
    ids = torch.tensor([task.train.ids[0][0]])
    torch.testing.assert_close(ours(ids), theirs(ids).last_hidden_state, rtol=1e-9, atol=1e-9)


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
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.fsync", lambda _: None)
    rows = "".join(f'"{a}","{b}","{c}"\n' for a, b, c in TRIPLES)
    Path("pairs.csv").write_text("anchor,positive,negative\n" + rows, encoding="utf-8")
    scored = "".join(f'"{a}","{b}",1\n"{a}","{c}",0\n' for a, b, c in TRIPLES)
    Path("scored.csv").write_text("one,two,score\n" + scored, encoding="utf-8")


def tables(**changes: Any) -> dict[str, Any]:
    pairs = {"kind": "table", "path": "pairs.csv", "header": True, "source": "anchor", "target": "positive"}
    scored = {"kind": "table", "path": "scored.csv", "header": True, "source": "one", "target": "two"}
    training = {"precision": "fp32", "matmul_precision": "highest", "device": "cpu", "steps": 6}
    return {
        "task": "embedding",
        "data": {"train": pairs, "negative": "negative", "scored": scored, "held_out": 0.2},
        "model": {"preset": "classifier", "stacks": SMALL},
        "batch_size": 8,
        "training": training | {"save_every": 3, "evaluate_every": 100},
        **changes,
    }


def test_from_a_table_to_vectors_that_the_other_library_opens(capsys: pytest.CaptureFixture[str]):
    steps = {"steps": 40, "optimizer": {"kind": "adamw", "lr": 1e-2}, "schedule": {"kind": "constant"}}
    given = tables(model={"preset": "bert-base", "stacks": SMALL}, pooling="cls")
    run, prepared = start(validate(merged(given, steps), where="x"), Path("run"))
    assert prepared.data.lines()[1] == "train: 13 of 13 examples, 3.7 tokens a text"
    found = losses([*train(run)])
    assert float.fromhex(found[40]) < 0.5 * float.fromhex(found[1])
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


def merged(given: Mapping[str, Any], training: Mapping[str, Any]) -> dict[str, Any]:
    return {**given, "training": {**given["training"], **training}}


def test_resumed_as_if_never_stopped_and_begun_again_from_what_was_saved():
    check_resumed(tables(pooling="max"))
    again = tables(model={"start": "part"})
    _, prepared = start(validate(again, where="x"), Path("again"))
    task = prepared.task
    assert isinstance(task, Embedding)
    assert task.pooling == "max"
    assert json.loads(Path("again/recipe.json").read_bytes())["pooling"] is None
    assert load("part").sentences.pooling == "max"


def test_vectors_of_a_real_encoder_without_a_recipe(shared_data: Path, capsys: pytest.CaptureFixture[str]):
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
        ({"model": {"preset": "demo"}}, "expected an encoder or a decoder alone to make vectors, got both"),
        ({"model": {"preset": "image-classifier"}}, "expected a network of texts, got one of pictures"),
    ],
)
def test_a_mistake_is_told_before_training(changes: dict[str, Any], told: str):
    given = tables()
    for name, table in changes.items():
        given[name] = {**given[name], **table} if name != "model" else table
    with pytest.raises(UserError) as error:
        start(validate(given, where="x"), Path("run"))
    assert told in str(error.value)


def test_a_sentence_encoder_that_does_more_than_pool_is_told():
    with pytest.raises(UserError, match=r"^model: expected a sentence encoder that only pools, got do_lower_case"):
        _ = Sentences(lowercase=True).pooling
    head = network_of(task_of(TRIPLES), "classifier").config.head
    assert isinstance(head, NoHead)
