"""Labels in batches, and labels that a text entails, against the pipelines of the reference library."""

from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.api import Model, load
from clearhead.errors import UserError
from tests.later import later

transformers = later("transformers")
WORDS = "this example text is about good bad sport politics a the one two three . un ##seen".split()
TEXTS = ["one two three", "a good text about the sport", "bad bad bad . " * 40, "three"]
LABELS = ["sport", "politics", "the good"]
NAMES = {
    "usual": ("contradiction", "neutral", "entailment"),
    "turned": ("ENTAILMENT", "NEUTRAL", "CONTRADICTION"),
    "two": ("entailment", "not_entailment"),
}


def saved(folder: Path, names: tuple[str, ...], kind: str) -> Path:
    """A tiny random classifier of that library, whose texts may have 32 tokens."""
    torch.manual_seed(0)
    labels: dict[str, Any] = {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
    tokenizer = transformers.BertTokenizer(vocab={word: i for i, word in enumerate(vocabulary)}, model_max_length=32)
    size = {"vocab_size": len(vocabulary), "max_position_embeddings": 32, "pad_token_id": 0}
    if kind == "encoder":
        config = transformers.BertConfig(
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            initializer_range=0.5,
            **size,
            **labels,
        )
        model = transformers.BertForSequenceClassification(config)
    else:
        ends = {"bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 3, "forced_eos_token_id": None}
        config = transformers.BartConfig(
            d_model=16,
            **{
                f"{side}_{name}": n
                for side in ("encoder", "decoder")
                for name, n in {"layers": 1, "attention_heads": 2, "ffn_dim": 16}.items()
            },
            init_std=0.5,
            **{**size, **ends, **labels},
        )
        model = transformers.BartForSequenceClassification(config)
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=["encoder", "both"])
def kind(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def pair(kind: str, tmp_path_factory) -> tuple[Model, Path]:
    folder = saved(tmp_path_factory.mktemp(kind), NAMES["usual"], kind)
    return load(folder), folder


def pipeline(task: str, folder: Path) -> Any:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    return transformers.pipeline(task, model=model, tokenizer=tokenizer, device="cpu")


def test_labels_in_batches_are_those_of_each_text_alone(pair: tuple[Model, Path]):
    model, folder = pair
    found = model.classify(TEXTS)
    for text, row in zip(TEXTS, found, strict=True):
        assert dict(row) == pytest.approx(dict(model.classify([text])[0]), abs=1e-5)
    theirs = pipeline("text-classification", folder)(TEXTS, top_k=None, truncation=True)
    for row, own in zip(found, theirs, strict=True):
        assert dict(row) == pytest.approx({one["label"]: one["score"] for one in own}, abs=1e-5)
    assert [said["label"] for said in model.predict(TEXTS)] == [row[0][0] for row in found]


@pytest.mark.parametrize("several", [False, True])
def test_labels_that_a_text_entails_are_those_of_the_pipeline(pair: tuple[Model, Path], several: bool):
    model, folder = pair
    template = "this text is about {} ."
    ask = pipeline("zero-shot-classification", folder)
    for labels in (LABELS, LABELS[:1]):
        theirs = ask(TEXTS, labels, hypothesis_template=template, multi_label=several)
        found = model.classify(TEXTS, labels=labels, template=template, several=several)
        for row, own in zip(found, theirs, strict=True):
            assert dict(row) == pytest.approx(dict(zip(own["labels"], own["scores"], strict=True)), abs=1e-5)
            assert [score for _, score in row] == sorted((score for _, score in row), reverse=True)


@pytest.mark.parametrize("names", ["turned", "two"])
def test_labels_of_other_orders(names: str, tmp_path):
    folder = saved(tmp_path, NAMES[names], "encoder")
    theirs = pipeline("zero-shot-classification", folder)(TEXTS[1], LABELS, multi_label=True)
    (found,) = load(folder).classify(TEXTS[1:2], labels=LABELS, several=True)
    assert dict(found) == pytest.approx(dict(zip(theirs["labels"], theirs["scores"], strict=True)), abs=1e-5)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"labels": "sport"}, "labels: expected a list of different labels, got 'sport'"),
        ({"labels": ["a", "a"]}, "labels: expected a list of different labels, got"),
        ({"labels": ["a", " "]}, "labels: expected a list of different labels, got"),
        ({"labels": ["a"], "template": "about"}, "template: expected {} in place of the label, got 'about'"),
    ],
)
def test_labels_that_nothing_can_entail(pair: tuple[Model, Path], given: dict[str, Any], told: str):
    with pytest.raises(UserError) as error:
        pair[0].classify(TEXTS, **given)
    assert str(error.value).startswith(told)
