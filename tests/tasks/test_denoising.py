"""Denoising: the pairs, and what users do with it."""

from pathlib import Path
from typing import Any

import pytest

from clearhead.api import load
from clearhead.cli import main
from clearhead.data.encoded import EncodedText
from clearhead.recipe.data import Corruption, Infilling, Spans
from clearhead.recipe.tokenizers import Words
from clearhead.tasks.denoising import Denoising, extended_for
from clearhead.text.special_tokens import SpecialTokens
from clearhead.text.tokenizers import Tokenizer
from tests.tasks.small import tables_of, trained
from tests.training.tiny import GENERATION, number_pairs

LINES = [f"{a}. {b}" for a, b in zip(number_pairs(40).source, number_pairs(40, seed=2).source, strict=True)]
BOTH = pytest.mark.parametrize("corruption", [Spans(), Infilling()], ids=lambda config: config.kind)


def task_of(corruption: Corruption, *, seed: int = 0) -> Denoising:
    tokenizer = extended_for(corruption, Tokenizer.train(LINES, Words()))
    own: Any = {"running": False, "generation": GENERATION, "marks": SpecialTokens()}
    both = [EncodedText.of([[line] for line in lines], tokenizer, **own).ids for lines in (LINES, LINES[:4])]
    rest: Any = {"length": 10, "max_tokens": 120, "generation": GENERATION}
    return Denoising(tokenizer, *both, corruption=corruption, seed=seed, **rest)


def tables(corruption: Corruption) -> dict[str, Any]:
    source = {"kind": "text", "paths": ["lines.txt"], "documents": "line"}
    data = {"length": 10, "corruption": corruption.model_dump()}
    fields = {"training": {"max_tokens": 120}, "generation": {"max_new_tokens": 8}}
    return tables_of("denoising", source, preset="demo", data=data, **fields)


def write_data() -> None:
    Path("lines.txt").write_text("\n".join(LINES), encoding="utf-8")


@pytest.fixture(autouse=True)
def _data(in_a_folder: None) -> None:
    write_data()


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


@pytest.mark.parametrize(("recipe", "hole"), [("span_corruption", "<extra_id_0>"), ("denoising", "<mask>")])
def test_from_a_text_to_a_translator(recipe: str, hole: str, capsys):
    line = f"{recipe} --text lines.txt --data.train.documents line --steps 2 --model.preset demo"
    figures, lines = trained(f"{line} --generation.max_new_tokens 4", capsys)
    assert figures.keys() >= {"loss", "perplexity"}
    assert "train: 36 documents" in lines
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
