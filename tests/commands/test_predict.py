"""Predictions from the command line: inputs of every form, and results in their order."""

import json
from pathlib import Path

import pytest

from clearhead import config as c
from clearhead.api import load
from clearhead.cli.use import inputs
from clearhead.errors import UserError
from tests.explorer.traced import CONFIGS, stack
from tests.explorer.traced import model_of as traced
from tests.files import put
from tests.shell import Folders, Shell, classifier

TEXTS = ["one two", "three", "", "two two two", "four"]


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.txt", "one two\nthree\n\ntwo two two\nfour\n", ()),
        ("a.csv", "id;text\n1;one two\n2;three\n3;\n4;two two two\n5;four\n", ()),
        ("a.tsv", "body\tid\none two\t1\nthree\t2\n\t3\ntwo two two\t4\nfour\t5\n", ("--text", "body")),
        ("b.csv", 'one two\nthree\n""\ntwo two two\nfour\n', ("--text", "0")),
        ("a.jsonl", "".join(json.dumps({"m": {"t": text}}) + "\n" for text in TEXTS), ("--text", "m.t")),
    ],
)
def test_a_file_of_any_form_gives_a_line_for_each_input(
    shell: Shell, folders: Folders, name: str, content: str, columns: tuple[str, ...], monkeypatch
):
    monkeypatch.setattr(inputs, "LINES", 2)
    put(name, content)
    line = ("classify", folders["labels"], "--file", name, *columns, "--out")
    shell.done(*line, "out.jsonl")
    found = [json.loads(line) for line in Path("out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row.pop("input") for row in found] == TEXTS
    for row, known in zip(found, classifier().predict(TEXTS), strict=True):
        chances = row.pop("probabilities", {})
        assert chances == pytest.approx(known.pop("probabilities", {}))  # A kernel may go by the size of a batch.
        assert row == known
    assert found[2] == {}
    shell.done(*line, "out.txt")
    plain = Path("out.txt").read_text(encoding="utf-8").splitlines()
    assert [line.partition("\t")[0] for line in plain] == [row.get("label", "") for row in found]
    assert {path.name for path in Path().iterdir()} == {name, "out.jsonl", "out.txt"}


def test_a_pair_has_a_tab_or_two_columns(shell: Shell):
    model = classifier(pairs=True)
    folder = model.save(Path("pairs"))
    found = shell.done("classify", folder, "one\ttwo", "three", "--json").rows
    expected = model.predict([("one", "two"), {"text": "three"}])
    assert found == [{"input": row["input"], **own} for row, own in zip(found, expected, strict=True)]
    shares = model.logits("one", "two").softmax(-1).tolist()
    assert found[0]["probabilities"] == pytest.approx(dict(zip("xy", shares, strict=True)), abs=1e-6)
    put("a.csv", "text,text_pair\none,two\n")
    shell.done("classify", folder, "--file", "a.csv", "--out", "a.jsonl")
    assert json.loads(Path("a.jsonl").read_text(encoding="utf-8")) == {**found[0], "input": ["one", "two"]}


def test_a_table_is_read_as_the_training_data_were():
    from clearhead.data.guessing import InputColumns, read_inputs

    put("a.csv", "n,message\n1,hello\n")
    put("b.csv", "1,hello\n2,you\n")
    named = InputColumns(trained={"train": {"kind": "table", "text": "message", "header": True}})
    numbered = InputColumns(trained={"train": {"kind": "table", "text": 1}})
    assert [*read_inputs(Path("a.csv"), named)] == ["hello"]
    assert [*read_inputs(Path("a.csv"), numbered)] == ["hello"], "a name that is usual comes first"
    assert [*read_inputs(Path("b.csv"), numbered)] == ["hello", "you"]
    Path("c").write_text("1;grüße;a\n2;you;b\n", encoding="latin-1")
    form = {"path": "SMSSpam", "format": "csv", "delimiter": ";", "encoding": "latin-1"}
    like = InputColumns(trained={"train": {"kind": "table", "text": 1, **form}})
    assert [*read_inputs(Path("c"), like)] == ["grüße", "you"]
    put("d", "one text\nof two lines\n")
    assert [*read_inputs(Path("d"), like)] == ["one text", "of two lines"]


def test_answers_are_parts_of_the_context(shell: Shell, monkeypatch):
    """Each question goes with the context that an option gives."""
    pairs: list[object] = []
    monkeypatch.setattr("clearhead.cli.use.predictions.predict_inputs", lambda _, rows, *__, **___: pairs.extend(rows))
    put("a.txt", "a text")
    shell.done("answer", "model", "who?", "what?", "--context-file", "a.txt")
    shell.done("answer", "model", "who?\ta text")
    assert pairs == [("who?", "a text"), ("what?", "a text"), "who?\ta text"]


def test_labels_that_a_text_entails(shell: Shell):
    model = classifier(labels=("contradiction", "neutral", "entailment"), pairs=True)
    folder = model.save(Path("nli"))
    line = ("classify", folder, "one two", "", "--labels", "a, b", "--template", "this is about {}", "--json")
    found = shell.done(*line).rows
    own = {"labels": ["a", "b"], "template": "this is about {}"}
    assert found[0]["probabilities"] == pytest.approx(dict(model.classify(["one two"], **own)[0]))
    assert found[1] == {"input": ""}
    alone = shell.done(*line, "--several").rows[0]["probabilities"]
    assert alone == pytest.approx(dict(model.classify(["one two"], several=True, **own)[0]))


def test_the_input_that_a_model_cannot_read_is_told_by_its_number(shell: Shell, monkeypatch):
    short = {"encoder": stack(positions=c.Learned(max_length=6))}
    model = traced(CONFIGS["encoder_decoder_post"].model_copy(update=short))
    model.network.double()
    long = "one " * 9
    with pytest.raises(UserError, match=r"^input 3: length \d+: this model's positions end at 6"):
        model.predict(["one", "", long, "two"])
    put("a.txt", ["one", "two", "", long])
    monkeypatch.setattr(inputs, "LINES", 2)
    shell.refused("predict", model.save(Path("translator")), "--file", "a.txt", "--out", "b.txt")
    assert not Path("b.txt").exists()


def test_a_line_for_each_sound(shell: Shell, folders: Folders):
    from tests.small_sounds import sound, wav

    for i, seconds in enumerate((1.0, 2.2)):
        wav(Path(f"{i}.wav"), sound(i, seconds))
    line, model = ("transcribe", folders["speech"]), load(folders["speech"])
    greedy = shell.done(*line, "0.wav", "1.wav", "--language", "en", "--beams", 2)
    assert greedy.lines == model.transcribe(["0.wav", "1.wav"], "en", beams=2)
    translated = shell.done(*line, "1.wav", "--language", "german", "--task", "translate")
    assert translated.lines == model.transcribe(["1.wav"], "de", "translate")
    assert "a.jsonl: 2 transcripts" in shell.done(*line, "0.wav", "1.wav", "--out", "a.jsonl").err
    rows = [json.loads(line) for line in Path("a.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(row["input"], row["seconds"]) for row in rows] == [("0.wav", 1.0), ("1.wav", 2.2)]
    assert [row["text"] for row in rows] == model.transcribe(["0.wav", "1.wav"])
    assert {row["language"] for row in rows} <= {"en", "de"}
    wrong = shell.refused(*line, "0.wav", "--language", "fr")
    assert wrong.startswith("language: expected one of the model (en, de), got 'fr'")
    other = shell.refused("transcribe", folders["translator"], "0.wav")
    assert "expected a model to transcribe, got one to translate; try clearhead translate" in other
