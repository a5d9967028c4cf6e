"""Text to text: prefixes, metrics, the loss, and what users do with a table of two columns."""

import json
from pathlib import Path
from typing import Any

import pytest

from clearhead.api import load
from clearhead.checkpoints.families import preset
from clearhead.cli import main
from clearhead.data.sources import Pairs
from clearhead.errors import UserError
from clearhead.recipe.tokenizers import Words
from clearhead.runs import start
from clearhead.tasks.registry import suitable, validate
from clearhead.tasks.text_scores import Metric, rouge, written_scores
from clearhead.tasks.text_to_text import TextToText
from clearhead.text.tokenizers import Tokenizer
from tests.tasks.reference import UPDATES, encoder_decoder_loss, require_equal_updates, small_encoder_decoder
from tests.tasks.updates import check_resumed
from tests.training.tiny import GENERATION, SMALL, encoded, number_pairs

PAIRS = number_pairs(40)


def task_of(metric: Metric = "rouge") -> TextToText:
    tokenizer = Tokenizer.train([*PAIRS.source, *PAIRS.target], Words())
    both = encoded(tokenizer, PAIRS), encoded(tokenizer, number_pairs(4, seed=1))
    return TextToText(tokenizer, *both, max_tokens=200, generation=GENERATION, metric=metric)


def tables(**training: Any) -> dict[str, Any]:
    settings = {"precision": "fp32", "matmul_precision": "highest", "device": "cpu", "max_tokens": 120, "steps": 4}
    source = {"kind": "table", "path": "pairs.jsonl", "source": "long", "target": "short"}
    return {
        "task": "text_to_text",
        "data": {"train": source, "held_out": 8, "prefix": "shorten: "},
        "tokenizer": {"kind": "words"},
        "model": {"preset": "demo", "stacks": SMALL},
        "training": {**settings, "save_every": 2, **training},
        "generation": {"max_new_tokens": 8},
    }


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.fsync", lambda _: None)
    write("pairs.jsonl", PAIRS)


def write(name: str, pairs: Pairs) -> None:
    rows = "".join(json.dumps({"long": a, "short": b}) + "\n" for a, b in pairs)
    Path(name).write_text(rows, encoding="utf-8")


@UPDATES
def test_losses_and_updates_are_those_of_the_other_library(steps: int, tmp_path: Path):
    task = task_of()
    theirs, network = small_encoder_decoder(tmp_path / "model", task.tokenizer.vocab_size)
    require_equal_updates(task, network, theirs, encoder_decoder_loss, steps=steps)


def test_from_a_table_to_texts_with_the_prefix_before_each(capsys: pytest.CaptureFixture[str]):
    changes = " ".join(f"--model.stacks.{name} {value}" for name, value in SMALL.items())
    columns = "--data.train.source long --data.train.target short --data.held_out 8 --data.prefix shorten:_"
    line = f"train text_to_text --data pairs.jsonl {columns} --model.preset demo --out run --precision fp32 --steps 2"
    main([word.replace("_", " ") if word == "shorten:_" else word for word in f"{line} --json {changes}".split()])
    said = capsys.readouterr()
    names = ["rougeL", "rouge1", "rouge2", "exact_match", "perplexity"]
    assert [*json.loads(said.out)][:5] == names
    assert "train: 3" in said.err
    model = load("run")
    main(["predict", "run", "one two", "--json"])
    found = json.loads(capsys.readouterr().out)["text"]
    assert found == model.translate(["shorten: one two"], beams=5)[0]
    write("other.jsonl", number_pairs(6, seed=5))
    main(["evaluate", "run", "--data", "other.jsonl", "--page", "mistakes.html"])
    assert "<!doctype html>" in Path("mistakes.html").read_text(encoding="utf-8").lower()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == names
    assert "95% interval" in lines[0]
    model.save("out")
    main(["predict", "out", "one two"])
    assert capsys.readouterr().out.splitlines() == [found], "the folder remembers the prefix"


def test_resumed_as_if_never_stopped():
    prepared = check_resumed(tables(), 4)
    assert isinstance(prepared.task, TextToText)
    first = prepared.task.tokenizer.decode(prepared.task.train.source[0])
    assert first.startswith("shorten: ")


def test_rouge_is_that_of_its_package():
    from rouge_score import rouge_scorer  # It imports much of NLTK and of SciPy.

    outputs, references = ["the cats sat", "a dog", ""], ["the cat sat down", "a dog", "a bird"]
    scorer = rouge_scorer.RougeScorer(["rougeL", "rouge2"], use_stemmer=True)
    for score in rouge(outputs, references):
        assert score.interval is not None
        assert score.interval[0] <= score.value <= score.interval[1]
        if score.name != "rouge1":
            rows = [scorer.score(r, o)[score.name].fmeasure for o, r in zip(outputs, references, strict=True)]
            assert score.value == pytest.approx(100 * sum(rows) / 3)
    with pytest.raises(UserError, match="expected references in Latin letters, got others; try evaluation"):
        rouge(["中文"], ["中文"])


@pytest.mark.parametrize("metric", ["bleu", "chrf", "exact_match"])
def test_each_metric_chooses_the_best_by_its_own_score(metric: Metric):
    task = task_of(metric)
    perfect = written_scores(metric, PAIRS.target, PAIRS.target)
    assert perfect[0].name == task.main_score
    assert perfect[0].value == pytest.approx(1 if metric == "exact_match" else 100)


def test_what_it_cannot_do_is_told():
    with pytest.raises(UserError, match=r"^model: expected an encoder and a decoder to write a text for another, got"):
        task_of().fit(preset("nano"))
    assert suitable(preset("demo"), where="x") is not TextToText
    given = tables()
    given["data"]["train"] |= {"target": "shrt"}
    with pytest.raises(UserError, match=r"pairs\.jsonl:1: expected a field 'shrt', got none"):
        start(validate(given, where="x"), Path("run"))
