"""Masked language modelling: the loss, the masks, and what users do with it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.api import Model, load
from clearhead.checkpoints.families import preset
from clearhead.cli import main
from clearhead.config import ModelConfig
from clearhead.config.heads import LanguageHead
from clearhead.data.encoded import EncodedText
from clearhead.data.sequences import Sequences
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.model.loss import IGNORED
from clearhead.recipe.tokenizers import Words
from clearhead.runs import start
from clearhead.tasks.masked_lm import MaskedLanguageModel
from clearhead.tasks.registry import suitable, validate
from clearhead.tasks.task import Batch
from clearhead.text.special_tokens import SpecialTokens, with_mask
from clearhead.text.tokenizers import Tokenizer
from clearhead.training.train import train
from tests.tasks.reference import UPDATES, require_equal_updates
from tests.tasks.updates import check_resumed
from tests.training.tiny import GENERATION, number_pairs

SMALL = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 32, "dropout": 0.0}
LINES = number_pairs(40).source


def texts_of(lines: list[str], tokenizer: Tokenizer) -> Sequences:
    pieces = [[line] for line in lines]
    return EncodedText.of(pieces, tokenizer, running=False, generation=GENERATION, marks=SpecialTokens()).ids


def task_of(*, length: int = 12, **settings: Any) -> MaskedLanguageModel:
    tokenizer = with_mask(Tokenizer.train(LINES, Words()))
    both = texts_of(LINES, tokenizer), texts_of(LINES[:8], tokenizer)
    return MaskedLanguageModel(tokenizer, *both, length=length, max_tokens=4 * length, **settings)


def network_of(task: MaskedLanguageModel, name: str = "classifier") -> Transformer:
    config = preset(name).model_dump()
    inputs = config["encoder"]["input"] | {"vocab_size": task.tokenizer.vocab_size}
    config["encoder"] |= SMALL | {"attn_dropout": 0.0, "input": inputs}
    torch.manual_seed(0)
    return Transformer(task.fit(ModelConfig.model_validate(config)))


def tables(**training: Any) -> dict[str, Any]:
    settings = {"precision": "fp32", "matmul_precision": "highest", "max_tokens": 64, "device": "cpu", "steps": 6}
    return {
        "task": "masked_lm",
        "data": {"train": {"kind": "text", "paths": ["lines.txt"], "documents": "line"}, "length": 16},
        "tokenizer": {"kind": "words"},
        "model": {"preset": "classifier", "stacks": SMALL},
        "training": {**settings, "save_every": 3, **training},
    }


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.fsync", lambda _: None)
    Path("lines.txt").write_text("\n".join(LINES), encoding="utf-8")


def read(batch: Batch) -> list[int]:
    tokens = batch.inputs[0]
    return tokens.real(tokens.ids).tolist()


# --- masks -------------------------------------------------------------------------------------------------------


def test_every_text_is_read_once_an_epoch_with_its_marks_and_masks_of_its_own():
    task = task_of()
    tokenizer, seen = task.tokenizer, list[list[list[int]]]()
    for epoch in range(2):
        batches = [task.collate(examples) for examples in task.plan(seed=0, epoch=epoch)]
        assert all(batch.inputs[0].ids.numel() <= 48 for batch in batches)
        found = list[int]()
        for batch in batches:
            assert batch.count == int((batch.labels != IGNORED).sum()) > 0
            labels = batch.labels.tolist()
            found += [a if b == IGNORED else b for a, b in zip(read(batch), labels, strict=True)]
        texts = tokenizer.decode(found).split()
        assert sorted(texts) == sorted(" ".join(LINES).split())
        assert found.count(tokenizer.need("bos")) == found.count(tokenizer.need("eos")) == len(LINES)
        seen.append(sorted(read(batch) for batch in batches))
    assert seen[0] != seen[1]


def test_masks_follow_from_the_seed_the_epoch_and_the_row_alone():
    task, other = task_of(), task_of(seed=1)
    n = len(task.train)
    again = task_of().collate([n + 3])
    assert read(task.collate([0, n + 3]))[-len(read(again)) :] == read(again)
    assert read(task.collate([*range(n)])) != read(other.collate([*range(n)]))
    assert read(task.collate([*range(n)])) != read(task.collate([*range(n, 2 * n)])), "another epoch"


def test_a_long_text_is_cut_and_each_piece_gets_marks():
    tokenizer = with_mask(Tokenizer.train(LINES, Words()))
    long = texts_of([" ".join(LINES)], tokenizer)
    task = MaskedLanguageModel(tokenizer, long, long, length=12, max_tokens=48)
    n = len(" ".join(LINES).split())
    assert len(task.train) == -(-n // 10)
    ids = read(task.collate([0]))
    assert (ids[0], ids[-1]) == (tokenizer.bos_id, tokenizer.eos_id)


# --- the loss ----------------------------------------------------------------------------------------------------


@UPDATES
def test_losses_and_updates_are_those_of_the_other_library(steps: int, tmp_path: Path):
    """Several texts share a row; a mask over pairs of cells keeps them apart there."""
    transformers = pytest.importorskip("transformers")
    task = task_of(masked=0.3)
    network = network_of(task, "bert-base")
    folder = Model(network, task.tokenizer).save(tmp_path / "model")
    theirs = transformers.BertForMaskedLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")

    def loss_of(model: Any, batch: Batch) -> torch.Tensor:
        (tokens,) = batch.inputs
        assert tokens.documents is not None
        assert tokens.valid is not None
        labels = torch.full(tokens.ids.shape, -100)
        labels[tokens.valid] = batch.labels
        apart = tokens.documents[:, None, :, None] != tokens.documents[:, None, None, :]
        mask = torch.zeros(apart.shape, dtype=torch.float64).masked_fill(apart, torch.finfo(torch.float64).min)
        return model(tokens.ids, attention_mask=mask, position_ids=tokens.positions, labels=labels).loss

    require_equal_updates(task, network, theirs, loss_of, steps=steps)


def test_only_masked_places_count_however_many_logits_are_made_at_once():
    task = task_of()
    network = network_of(task).double()
    batch = task.collate(task.plan(seed=0, epoch=0)[0])
    logits = network(*batch.inputs).log_softmax(-1)
    at = (batch.labels != IGNORED).nonzero()[:, 0]
    expected = -logits[at, batch.labels[at]].sum()
    assert len(at) == batch.count < len(batch.labels)
    for chunk in (1, 1 << 40):
        vars(network.head)["chunk"] = chunk
        loss, count = task.loss(network, batch)
        assert count == len(at)
        torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)


# --- a run -------------------------------------------------------------------------------------------------------


def test_from_a_text_to_words_in_place_of_masks(capsys: pytest.CaptureFixture[str]):
    """It learns; the model fills, is measured, opens in the other library, and begins a classifier."""
    changes = " ".join(f"--model.stacks.{name} {value}" for name, value in SMALL.items())
    line = "train masked_lm --text lines.txt --data.train.documents line --out run --precision fp32 --epochs 6 --json"
    main(f"{line} {changes} --data.length 16 --training.max_tokens 64 --training.schedule.warmup 5".split())
    said = capsys.readouterr()
    assert json.loads(said.out).keys() >= {"loss", "perplexity", "accuracy"}
    assert "train: 36 documents" in said.err
    assert "of them to predict in" in said.err
    model = load("run")
    assert suitable(model.config, where="x") is MaskedLanguageModel
    main(["predict", "run", "one <mask> three", "--json"])
    (place,) = json.loads(capsys.readouterr().out)["masks"]
    assert len(place) == 5
    ids = model.tokenizer.encode("one <mask> three", special_tokens=True)
    shares = model.logits("one <mask> three")[ids.index(model.tokenizer.need("mask"))].softmax(-1)
    assert place[0]["probability"] == pytest.approx(shares.max().item(), rel=1e-5)
    assert model.tokenizer.encode(place[0]["token"]) == [int(shares.argmax())]
    main(["evaluate", "run", "--text", "lines.txt"])
    assert capsys.readouterr().out.startswith("loss ")
    Path("labels.csv").write_text("body,kind\n" + "".join(f"{x},{len(x) > 12}\n" for x in LINES), encoding="utf-8")
    main(["train", "labels.csv", "--model.start", "run", "--out", "second", "--steps", "1", "--precision", "fp32"])
    before, after = (dict(load(name).network.named_parameters()) for name in ("run", "second"))
    at = "encoder.blocks.0.attn.q.weight"
    torch.testing.assert_close(before[at], after[at], atol=1e-4, rtol=0)


def test_resumed_as_if_never_stopped():
    check_resumed(tables())


def test_a_checkpoint_goes_on_with_its_head_or_gets_one():
    list(train(start(validate(tables(steps=1), where="x"), Path("first"))[0]))
    again = tables() | {"model": {"start": "first"}}
    again.pop("tokenizer")
    before = dict(load("first").network.named_parameters())
    same = dict(start(validate(again, where="x"), Path("same"))[0].network.named_parameters())
    torch.testing.assert_close(same["head.output.bias"].detach(), before["head.output.bias"].detach())
    task = task_of()
    config = preset("classifier")
    head = task.fit(config.model_copy(update={"encoder": network_of(task).config.encoder})).head
    assert isinstance(head, LanguageHead)
    assert head.tied
    assert head.transform


# --- mistakes ----------------------------------------------------------------------------------------------------


def test_what_cannot_be_masked_is_told():
    task = task_of()
    for name in ("nano", "demo"):
        with pytest.raises(UserError, match=r"^model: expected an encoder alone to restore masked tokens, got a decod"):
            task.fit(preset(name))
    model = Model(network_of(task), task.tokenizer)
    with pytest.raises(UserError, match=r"^text 2: expected <mask> where a word is to be filled in, got none"):
        list(MaskedLanguageModel.predict(model, ["a <mask>", "a b"]))
    Path("lines.txt").write_text("\n".join("qqq" for _ in range(20)), encoding="utf-8")
    list(train(start(validate(tables(steps=1), where="x"), Path("first"))[0]))
    Path("lines.txt").write_text("\n".join("unknown words" for _ in range(20)), encoding="utf-8")
    again = tables() | {"model": {"start": "first"}}
    again.pop("tokenizer")
    with pytest.raises(UserError, match=r"^train: expected tokens to mask, got only unknown ones"):
        start(validate(again, where="x"), Path("second"))
