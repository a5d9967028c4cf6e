"""Denoising: the pairs, the loss, and what users do with it."""

import json
from pathlib import Path
from typing import Any

import pytest

from clearhead.api import load
from clearhead.checkpoints.families import preset
from clearhead.cli import main
from clearhead.data.encoded import EncodedText
from clearhead.errors import UserError
from clearhead.recipe.data import Corruption, Infilling, Spans
from clearhead.recipe.tokenizers import Words
from clearhead.tasks.denoising import Denoising, extended_for
from clearhead.tasks.registry import suitable
from clearhead.text.special_tokens import SpecialTokens
from clearhead.text.tokenizers import Tokenizer
from tests.tasks.reference import UPDATES, encoder_decoder_loss, require_equal_updates, small_encoder_decoder
from tests.tasks.updates import check_resumed
from tests.training.tiny import GENERATION, SMALL, number_pairs

LINES = [f"{a}. {b}" for a, b in zip(number_pairs(40).source, number_pairs(40, seed=2).source, strict=True)]
BOTH = pytest.mark.parametrize("corruption", [Spans(), Infilling()], ids=lambda config: config.kind)


def task_of(corruption: Corruption, *, seed: int = 0) -> Denoising:
    tokenizer = extended_for(corruption, Tokenizer.train(LINES, Words()))
    own: Any = {"running": False, "generation": GENERATION, "marks": SpecialTokens()}
    both = [EncodedText.of([[line] for line in lines], tokenizer, **own).ids for lines in (LINES, LINES[:4])]
    rest: Any = {"length": 10, "max_tokens": 120, "generation": GENERATION}
    return Denoising(tokenizer, *both, corruption=corruption, seed=seed, **rest)


def tables(corruption: Corruption, **training: Any) -> dict[str, Any]:
    settings = {"precision": "fp32", "matmul_precision": "highest", "device": "cpu", "max_tokens": 120, "steps": 4}
    source = {"kind": "text", "paths": ["lines.txt"], "documents": "line"}
    return {
        "task": "denoising",
        "data": {"train": source, "length": 10, "corruption": corruption.model_dump()},
        "tokenizer": {"kind": "words"},
        "model": {"preset": "demo", "stacks": SMALL},
        "training": {**settings, "save_every": 2, **training},
        "generation": {"max_new_tokens": 8},
    }


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.fsync", lambda _: None)
    Path("lines.txt").write_text("\n".join(LINES), encoding="utf-8")


@BOTH
def test_each_piece_once_an_epoch_corrupted_anew_within_the_budget(corruption: Corruption):
    task = task_of(corruption)
    seen = []
    for epoch in range(2):
        plan = task.plan(seed=0, epoch=epoch)
        n = len(task.train)
        assert sorted(i for examples in plan for i in examples) == [*range(epoch * n, (epoch + 1) * n)]
        for examples in plan:
            batch = task.collate(examples)
            assert sum(tokens.ids.numel() for tokens in batch.inputs) <= 120
            assert batch.count == len(batch.labels) > 0
        seen.append([task.train.pair(i)[0] for i in range(epoch * n, (epoch + 1) * n)])
    assert seen[0] != seen[1]
    assert task_of(corruption).train.pair(3) == task.train.pair(3)
    assert [task_of(corruption, seed=1).train.pair(i)[0] for i in range(n)] != seen[0]


@BOTH
@UPDATES
def test_losses_and_updates_are_those_of_the_other_library(steps: int, corruption: Corruption, tmp_path: Path):
    task = task_of(corruption)
    theirs, network = small_encoder_decoder(tmp_path / "model", task.tokenizer.vocab_size)
    require_equal_updates(task, network, theirs, encoder_decoder_loss, steps=steps)


@BOTH
def test_resumed_as_if_never_stopped(corruption: Corruption):
    check_resumed(tables(corruption), 4)


@pytest.mark.parametrize(("recipe", "hole"), [("span_corruption", "<extra_id_0>"), ("denoising", "<mask>")])
def test_from_a_text_to_a_translator(recipe: str, hole: str, capsys: pytest.CaptureFixture[str]):
    changes = " ".join(f"--model.stacks.{name} {value}" for name, value in SMALL.items())
    line = f"train {recipe} --text lines.txt --data.train.documents line --out run --precision fp32 --steps 2 --json"
    main(f"{line} {changes} --model.preset demo --generation.max_new_tokens 4".split())
    said = capsys.readouterr()
    assert json.loads(said.out).keys() >= {"loss", "perplexity"}
    assert "train: 36 documents" in said.err
    model = load("run")
    main(["predict", "run", f"one {hole} three"])
    assert capsys.readouterr().out.splitlines() == model.translate([f"one {hole} three"])
    assert len(model.tokenizer.encode(hole)) == 1
    main(["evaluate", "run", "--text", "lines.txt"])
    assert capsys.readouterr().out.startswith("loss ")
    Path("upper.txt").write_text("\n".join(LINES).upper(), encoding="utf-8")
    line = "train translation --source lines.txt --target upper.txt --model.start run --steps 1 --out next"
    main([*line.split(), "--generation.max_new_tokens", "4", "--precision", "fp32"])
    assert load("next").tokenizer.vocab_size == model.tokenizer.vocab_size


def test_what_it_cannot_do_is_told():
    with pytest.raises(UserError, match=r"^model: expected an encoder and a decoder to restore texts, got one of them"):
        task_of(Spans()).fit(preset("nano"))
    assert suitable(preset("demo"), where="x") is not Denoising
