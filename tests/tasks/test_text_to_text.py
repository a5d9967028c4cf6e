"""Text to text: prefixes, metrics, and what users do with a table of two columns."""

import json
from pathlib import Path
from typing import Any

import pytest

from clearhead.api import load
from clearhead.cli import main
from clearhead.data.sources import Pairs
from clearhead.errors import UserError
from clearhead.recipe.tokenizers import Words
from clearhead.tasks.text_scores import Metric, rouge, written_scores
from clearhead.tasks.translation import TextToText
from clearhead.text.tokenizers import Tokenizer
from tests.tasks.small import begin, check_refused, tables_of, trained, write_rows
from tests.training.tiny import GENERATION, encoded, number_pairs

PAIRS = number_pairs(40)


def task_of(metric: Metric = "rouge") -> TextToText:
    tokenizer = Tokenizer.train([*PAIRS.source, *PAIRS.target], Words())
    both = encoded(tokenizer, PAIRS), encoded(tokenizer, number_pairs(4, seed=1))
    return TextToText(tokenizer, *both, max_tokens=200, generation=GENERATION, metric=metric)


def write(name: str, pairs: Pairs) -> None:
    write_rows(name, ({"long": a, "short": b} for a, b in pairs))


def tables(**train: Any) -> dict[str, Any]:
    source = {"kind": "table", "path": "pairs.jsonl", "source": "long", "target": "short", **train}
    fields = {"training": {"max_tokens": 120}, "generation": {"max_new_tokens": 8}}
    return tables_of("text_to_text", source, preset="demo", data={"held_out": 8, "prefix": "shorten: "}, **fields)


def write_data() -> None:
    write("pairs.jsonl", PAIRS)


@pytest.fixture(autouse=True)
def _data(in_a_folder: None) -> None:
    write_data()


def test_from_a_table_to_texts_with_the_prefix_before_each(capsys):
    columns = "--data.train.source long --data.train.target short --data.held_out 8 --data.prefix shorten:"
    line = f"text_to_text --data pairs.jsonl {columns} --model.preset demo --steps 2"
    figures, lines = trained(line, capsys)
    names = ["rougeL", "rouge1", "rouge2", "exact_match", "perplexity"]
    assert [*figures][:5] == names
    assert "train: 3" in lines
    model = load("run")
    main(["predict", "run", "one two", "--json"])
    found = json.loads(capsys.readouterr().out)["text"]
    assert found == model.translate(["one two"], beams=5)[0]
    assert model.tokenizer.decode(model.reader.ids(["one two"])[0]).startswith("shorten")
    write("other.jsonl", number_pairs(6, seed=5))
    main(["evaluate", "run", "--data", "other.jsonl", "--page", "mistakes.html"])
    assert "<!doctype html>" in Path("mistakes.html").read_text(encoding="utf-8").lower()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == names
    assert "95% interval" in lines[0]
    model.save("out")
    main(["predict", "out", "one two"])
    assert capsys.readouterr().out.splitlines() == [found], "the folder remembers the prefix"


def test_the_prefix_is_before_each_source():
    run, _ = begin(tables())
    assert isinstance(run.task, TextToText)
    assert run.task.tokenizer.decode(run.task.train.source[0]).startswith("shorten: ")


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
    check_refused(tables(target="shrt"), "pairs.jsonl:1: expected a field 'shrt', got none")
