"""Classes by an encoder-decoder, whose decoder reads the text again, against the reference library."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.api import Model, load
from clearhead.cli import main
from clearhead.config.heads import ClassificationHead
from clearhead.errors import UserError
from clearhead.pretrained_start import under_head
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import Words
from clearhead.tasks.classification.task import Classification
from clearhead.tasks.registry import suitable
from clearhead.text.tokenizers import Tokenizer
from tests.later import later
from tests.tasks.reference import UPDATES, require_equal_updates
from tests.tasks.small import SIZES
from tests.tasks.test_classification import WORDS, task_of, write_table
from tests.tasks.test_other_library import class_loss

transformers = later("transformers")

ROWS = [(f"the {a} and the {b}", kind) for kind, words in WORDS.items() for a in words.split() for b in words.split()]
# Norms and softmaxes of the first keep float64; those of the second are always computed in float32.
FAMILIES = {"Bart": 1e-9, "T5": 1e-5}


def tokenizer_of() -> Tokenizer:
    return Tokenizer.train([text for text, _ in ROWS], Words()).ending()


def saved(family: str, kind: str, tokenizer: Tokenizer, folder: Path, **fields: Any) -> Path:
    """A tiny network of the reference library with a tokenizer that ends each text."""
    torch.manual_seed(0)
    ids = {"pad_token_id": tokenizer.pad_id, "eos_token_id": tokenizer.eos_id, "bos_token_id": tokenizer.bos_id}
    ids |= {"decoder_start_token_id": tokenizer.eos_id, "vocab_size": tokenizer.vocab_size}
    both = {"layers": 1, "attention_heads": 2, "ffn_dim": 24}
    size: Mapping[str, Any] = {
        "Bart": {"d_model": 16, "dropout": 0.0, "max_position_embeddings": 32, "forced_eos_token_id": None}
        | {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in both.items()},
        "T5": {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2, "dropout_rate": 0.0},
    }[family]
    config = getattr(transformers, f"{family}Config")(**ids, **size, **fields)
    getattr(transformers, f"{family}{kind}")(config).save_pretrained(folder)
    for name, content in tokenizer.to_files().items():
        (folder / name).write_bytes(content)
    return folder


def read_again(tokenizer: Tokenizer, problem_type: str) -> Classification:
    return task_of(problem_type, tokenizer, again=GenerationConfig(start_id=tokenizer.eos_id))


@UPDATES
@pytest.mark.parametrize(
    ("family", "problem_type"),
    [(family, "single_label_classification") for family in FAMILIES]
    + [("Bart", "multi_label_classification"), ("Bart", "regression")],
)
def test_updates_are_those_of_the_reference_library(family: str, problem_type: str, steps: int, tmp_path: Path):
    tokenizer = tokenizer_of()
    task = read_again(tokenizer, problem_type)
    n_labels = len(task.labels)
    folder = saved(
        family, "ForSequenceClassification", tokenizer, tmp_path, num_labels=n_labels, problem_type=problem_type
    )
    network = load(folder).network
    assert task.fit(network.config).head.model_dump()["pool"] == "last"
    theirs = getattr(transformers, f"{family}ForSequenceClassification").from_pretrained(folder, dtype=torch.float64)
    require_equal_updates(task, network, theirs, class_loss, steps=steps, rel=FAMILIES[family])


@pytest.mark.parametrize("family", [*FAMILIES])
def test_a_new_head_has_the_layers_of_the_reference_library(
    family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """From a model that writes texts to a classifier which that library opens, with equal logits."""
    tokenizer = tokenizer_of()
    base = load(saved(family, "ForConditionalGeneration", tokenizer, tmp_path / "base"))
    task = read_again(tokenizer, "single_label_classification")
    network = under_head(base.network, task.fit(base.config).head, seed=0).eval()
    model = Model(network, tokenizer, base.generation)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(model.save(tmp_path / "new")).eval()
    text = "the cat and the plum"
    ids = torch.tensor([tokenizer.encode(text, special_tokens=True)])
    torch.testing.assert_close(theirs(ids).logits[0], model.logits(text), atol=1e-5, rtol=1e-5)
    again = load(tmp_path / "new")
    assert suitable(again.config, where="x") is Classification
    shares = torch.tensor([*again.predict([text])[0]["probabilities"].values()])  # pyrefly: ignore[missing-attribute]
    torch.testing.assert_close(shares, theirs(ids).logits[0].softmax(-1).sort(descending=True).values)
    main(["check", str(tmp_path / "new")])
    assert "Compared: states, head.logits, ids of 10 texts, labels." in capsys.readouterr().out


@pytest.mark.parametrize("start", ["Bart", "new"])
def test_from_a_table_to_predictions(start: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_table(Path("table.csv"), ROWS)
    line = "train table.csv --out run --precision fp32 --steps 4 --training.max_tokens 256 --json"
    if start == "new":
        main([*line.split(), *"--model.preset transformer-tiny --tokenizer.kind words".split(), *SIZES])
    else:
        base = saved(start, "ForConditionalGeneration", tokenizer_of(), tmp_path / "base")
        main([*line.split(), "--model.start", str(base)])
    assert json.loads(capsys.readouterr().out)["held_out"].keys() >= {"accuracy", "loss"}
    model = load("run")
    head = model.config.head
    assert isinstance(head, ClassificationHead)
    assert (head.labels, head.pool, head.pooler) == ((*WORDS,), "last", True)
    texts = ["the cat and the dog", "the saw"]
    main(["classify", "run", *texts])
    said = [row.split("\t") for row in capsys.readouterr().out.splitlines()]
    for (label, share), text in zip(said, texts, strict=True):
        shares = model.logits(text).softmax(-1)
        assert label == head.labels[int(shares.argmax())]
        assert float(share) == pytest.approx(shares.max().item(), abs=1e-4)
    main(["evaluate", "run", "--data", "table.csv"])
    assert capsys.readouterr().out.startswith("accuracy ")


def test_a_tokenizer_without_an_end_is_told(tmp_path: Path):
    tokenizer = tokenizer_of()
    model = load(saved("Bart", "ForSequenceClassification", tokenizer, tmp_path))
    other = tokenizer.templated("{end} $A", "$A $B")
    with pytest.raises(UserError, match=r"eos_token_id: expected \d+, the last token of a text, where the classifier"):
        Model(model.network, other, model.generation).predict(["the cat"])
