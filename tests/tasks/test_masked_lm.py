"""Masked language modelling: masks, the loss, and what users do with it."""

import json
from typing import Any

import pytest
import torch

from clearhead.api import Model, load
from clearhead.checkpoints.families import preset
from clearhead.cli import main
from clearhead.config.heads import LanguageHead
from clearhead.data.encoded import EncodedText
from clearhead.data.sequences import Sequences
from clearhead.errors import UserError
from clearhead.model.loss import IGNORED
from clearhead.recipe.tokenizers import Words
from clearhead.tasks.masked_lm import MaskedLanguageModel
from clearhead.tasks.registry import suitable
from clearhead.tasks.task import Batch
from clearhead.text.special_tokens import SpecialTokens, with_mask
from clearhead.text.tokenizers import Tokenizer
from tests.files import put
from tests.tasks.small import begin, check_refused, network_of, run_of, tables_of, trained
from tests.training.tiny import GENERATION, number_pairs

LINES = number_pairs(40).source


def texts_of(lines: list[str], tokenizer: Tokenizer) -> Sequences:
    pieces = [[line] for line in lines]
    return EncodedText.of(pieces, tokenizer, running=False, generation=GENERATION, marks=SpecialTokens()).ids


def task_of(*, length: int = 12, **settings: Any) -> MaskedLanguageModel:
    tokenizer = with_mask(Tokenizer.train(LINES, Words()))
    both = texts_of(LINES, tokenizer), texts_of(LINES[:8], tokenizer)
    return MaskedLanguageModel(tokenizer, *both, length=length, max_tokens=4 * length, **settings)


def tables(**training: Any) -> dict[str, Any]:
    train = {"kind": "text", "paths": ["lines.txt"], "documents": "line"}
    return tables_of("masked_lm", train, data={"length": 16}, training=training)


def write_data() -> None:
    put("lines.txt", LINES)


@pytest.fixture(autouse=True)
def _data(in_a_folder: None) -> None:
    write_data()


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


def test_only_masked_places_count_however_many_logits_are_made_at_once():
    task = task_of()
    network = network_of(task)
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


def test_from_a_text_to_words_in_place_of_masks(capsys):
    """It learns; the model fills, is measured, opens in the other library, and begins a classifier."""
    line = "masked_lm --text lines.txt --data.train.documents line --epochs 6 --data.length 16"
    figures, lines = trained(f"{line} --training.max_tokens 64 --training.schedule.warmup 5", capsys)
    assert figures.keys() >= {"loss", "perplexity", "accuracy"}
    assert "train: 36 documents" in lines
    assert "of them to predict in" in lines
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
    put("labels.csv", "body,kind\n" + "".join(f"{x},{len(x) > 12}\n" for x in LINES))
    main(["train", "labels.csv", "--model.start", "run", "--out", "second", "--steps", "1", "--precision", "fp32"])
    before, after = (dict(load(name).network.named_parameters()) for name in ("run", "second"))
    at = "encoder.blocks.0.attn.q.weight"
    torch.testing.assert_close(before[at], after[at], atol=1e-4, rtol=0)


def test_a_checkpoint_goes_on_with_its_head_or_gets_one():
    run_of(tables(steps=1), "first")
    again = tables() | {"model": {"start": "first"}}
    again.pop("tokenizer")
    before = dict(load("first").network.named_parameters())
    same = dict(begin(again)[0].network.named_parameters())
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
    model = Model(network_of(task), task.tokenizer)
    with pytest.raises(UserError, match=r"^text 2: expected <mask> where a word is to be filled in, got none"):
        list(MaskedLanguageModel.predict(model, ["a <mask>", "a b"]))
    put("lines.txt", ("qqq" for _ in range(20)))
    run_of(tables(steps=1), "first")
    put("lines.txt", ("unknown words" for _ in range(20)))
    again = tables() | {"model": {"start": "first"}}
    again.pop("tokenizer")
    check_refused(again, "train: expected tokens to mask, got only unknown ones")
