"""One translator of several languages, by a tag before each source."""

from pathlib import Path
from typing import Any

import pytest

from clearhead.api import load
from clearhead.cli import main
from clearhead.recipe.tokenizers import Words
from clearhead.tasks.translation import Translation
from clearhead.text.languages import known_tags
from clearhead.text.tokenizers import Tokenizer
from clearhead.training.events import Evaluated
from clearhead.training.train import train
from tests.tasks.small import begin, check_refused, run_of, tables_of
from tests.training.tiny import number_pairs

PAIRS = number_pairs(40)
UPPER = [text.upper() for text in PAIRS.source]


def parallel(target: str) -> dict[str, str]:
    return {"kind": "parallel", "source": "a.en", "target": target}


def tables() -> dict[str, Any]:
    train = {"kind": "languages", "to": {"de": parallel("a.de"), "up": parallel("a.up")}}
    fields = {"training": {"max_tokens": 120, "steps": 2}, "generation": {"max_new_tokens": 8}}
    return tables_of("translation", train, preset="demo", data={"held_out": 8}, **fields)


@pytest.fixture(autouse=True)
def _data(in_a_folder: None) -> None:
    for name, lines in (("a.en", PAIRS.source), ("a.de", PAIRS.target), ("a.up", UPPER)):
        Path(name).write_text("\n".join(lines), encoding="utf-8")


def test_each_source_is_read_with_the_token_of_its_language():
    run, _ = begin(tables())
    task = run.task
    assert isinstance(task, Translation)
    tokenizer = task.tokenizer
    de, up = (tokenizer.library.token_to_id(f"<2{name}>") for name in ("de", "up"))
    assert {ids[0] for ids in task.train.source} == {de, up}
    assert tokenizer.encode("<2de> one two") == [de, *tokenizer.encode("one two")]
    assert tokenizer.vocab_size == 4 + 10 + 10 + 10 + 2, "the tags are no text for the tokenizer to learn from"
    ups = [i for i, ids in enumerate(task.train.source) if ids[0] == up]
    assert all(tokenizer.decode(task.train.target[i]).isupper() for i in ups)
    assert 20 < len(ups) < 40
    (evaluated,) = [event.evaluation for event in train(run) if isinstance(event, Evaluated)]
    names = [score.name for score in evaluated.scores]
    assert names == ["bleu", "bleu.de", "chrf.de", "bleu.up", "chrf.up", "exact_match", "perplexity"]
    each = [evaluated.value(name) for name in ("bleu.de", "bleu.up")]
    assert evaluated.value("bleu") == pytest.approx(sum(each) / 2)


def test_a_language_is_asked_for(capsys):
    run_of(tables())
    main(["translate", "run", "--to", "up", "one two", "", "three"])
    said = capsys.readouterr().out.splitlines()
    assert [said[0], said[2]] == load("run").translate(["<2up> one two", "<2up> three"], beams=5)
    assert not said[1]
    main(["evaluate", "run", "--source", "a.en", "--target", "a.de", "--to", "de"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[:3]] == ["bleu", "bleu.de", "chrf.de"]
    main(["evaluate", "run", "--to", "up"])
    assert "bleu.de" not in capsys.readouterr().out
    load("run").save("out")
    main(["translate", "out", "--to", "up", "one two"])
    assert capsys.readouterr().out.splitlines() == said[:1], "known by its token where there is no recipe"
    for line, told in (
        (["translate", "run", "--to", "fr", "one"], "--to fr: expected a language of the model (de, up); try another"),
        (["evaluate", "run", "--source", "a.en", "--target", "a.de"], "expected sources that begin with <2de> "),
    ):
        with pytest.raises(SystemExit):
            main(line)
        assert told in capsys.readouterr().err


def test_a_model_of_one_language_has_none_to_ask_for(capsys):
    assert known_tags(Tokenizer.train(PAIRS.source, Words()), None) == {}
    given = tables()
    given["data"]["train"] = parallel("a.de")
    run_of(given)
    with pytest.raises(SystemExit):
        main(["translate", "run", "--to", "de", "one"])
    assert "--to de: expected a language of the model (one language alone)" in capsys.readouterr().err


def test_a_wrong_table_of_languages_is_told():
    for change, told in (
        ({"to": {}}, "data.train.to: "),
        ({"tag": "<2de> "}, "data.train.tag: "),
        ({"to": {"de": {"kind": "table", "path": "a.csv", "text": 0}}}, "to.de: expected columns of source and target"),
    ):
        given = tables()
        given["data"]["train"] |= change
        check_refused(given, told)
