"""Predictions from the command line: inputs of every form, results in their order, and what goes wrong."""

import json
from pathlib import Path

import pytest
import torch

from clearhead import config as c
from clearhead.api import Model
from clearhead.cli import main
from clearhead.cli.use import predictions as module
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.recipe.contract import Contract
from clearhead.recipe.tokenizers import Words
from clearhead.text.tokenizers import Tokenizer
from tests.explorer.traced import CONFIGS, stack
from tests.explorer.traced import model_of as traced

TEXTS = ["one two", "three", "", "two two two", "four"]
WORDS = ["one two three four", "this is about a b"]


def classifier(*, labels: tuple[str, ...] = ("x", "y"), pairs: bool = False, **head: object) -> Model:
    tokenizer = Tokenizer.train(WORDS, Words())
    if pairs:
        tokenizer = tokenizer.templated("$A", "$A {end} $B:1")
    torch.manual_seed(0)
    reads = c.TokenInput(vocab_size=tokenizer.vocab_size, n_types=2 if pairs else 0)
    encoder = stack().model_copy(update={"input": reads})
    given = c.ClassificationHead.model_validate({"n_labels": len(labels), "labels": labels, **head})
    network = Transformer(c.ModelConfig(encoder=encoder, head=given))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return Model(network.eval(), tokenizer)


@pytest.fixture(scope="module")
def model() -> Model:
    return classifier()


@pytest.fixture(scope="module")
def folder(model: Model, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(model.save(tmp_path_factory.mktemp("models") / "labels"))


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def lines(path: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


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
    folder: str, model: Model, name: str, content: str, columns: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "LINES", 2)
    Path(name).write_text(content, encoding="utf-8")
    main(["classify", folder, "--file", name, *columns, "--out", "out.jsonl"])
    found = lines("out.jsonl")
    assert [row.pop("input") for row in found] == TEXTS
    for row, known in zip(found, model.predict(TEXTS), strict=True):
        chances = row.pop("probabilities", {})
        assert chances == pytest.approx(known.pop("probabilities", {}))  # A kernel may go by the size of a batch.
        assert row == known
    assert found[2] == {}
    main(["classify", folder, "--file", name, *columns, "--out", "out.txt"])
    plain = Path("out.txt").read_text(encoding="utf-8").splitlines()
    assert [line.partition("\t")[0] for line in plain] == [row.get("label", "") for row in found]
    assert {path.name for path in Path().iterdir()} == {name, "out.jsonl", "out.txt"}


def test_texts_on_the_line(folder: str, model: Model, capsys: pytest.CaptureFixture[str]):
    main(["predict", folder, *TEXTS, "--json"])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found == [{"input": text, **said} for text, said in zip(TEXTS, model.predict(TEXTS), strict=True)]
    (known,) = model.classify(["three"])
    assert found[1]["probabilities"] == pytest.approx(dict(known))


def test_a_pair_has_a_tab_or_two_columns(capsys: pytest.CaptureFixture[str]):
    model = classifier(pairs=True)
    folder = str(model.save(Path("pairs")))
    main(["classify", folder, "one\ttwo", "three", "--json"])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert model.predict([("one", "two"), {"text": "three"}]) == [
        {name: value for name, value in row.items() if name != "input"} for row in found
    ]
    expected = model.logits("one", "two").softmax(-1)
    assert found[0]["probabilities"] == pytest.approx({"x": expected[0].item(), "y": expected[1].item()}, abs=1e-6)
    Path("a.csv").write_text("text,text_pair\none,two\n", encoding="utf-8")
    main(["classify", folder, "--file", "a.csv", "--out", "a.jsonl"])
    assert lines("a.jsonl") == [{**found[0], "input": ["one", "two"]}]
    model.put_under(Contract(task="classification", pairs=False))
    whole = dict(model.classify(["one\ttwo"])[0])
    assert whole["x"] == pytest.approx(model.logits("one\ttwo").softmax(-1)[0].item(), abs=1e-6)
    model.put_under(Contract(task="classification", pairs=True))
    main_error = r"^input 2: expected text and text_pair with a tab between them, got one text; add the other"
    with pytest.raises(ValueError, match=main_error):
        model.predict(["one\ttwo", "three"])


def test_a_table_is_read_as_the_training_data_were(folder: str):
    from clearhead.data.guessing import InputColumns, read_inputs

    Path("a.csv").write_text("n,message\n1,hello\n", encoding="utf-8")
    named = InputColumns(trained={"train": {"kind": "table", "text": "message", "header": True}})
    assert [*read_inputs(Path("a.csv"), named)] == ["hello"]
    numbered = InputColumns(trained={"train": {"kind": "table", "text": 1}})
    assert [*read_inputs(Path("a.csv"), numbered)] == ["hello"], "a name that is usual comes first"
    Path("b.csv").write_text("1,hello\n2,you\n", encoding="utf-8")
    assert [*read_inputs(Path("b.csv"), numbered)] == ["hello", "you"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("tag", "{}", "one"), "expected a model to tag, got one to classify; try clearhead classify {}"),
        (
            ("answer", "{}", "one?", "--context", "two"),
            "expected a model to answer, got one to classify; try clearhead",
        ),
        (("translate", "{}", "one"), "expected a model to translate, got one to classify; try clearhead classify {}"),
        (("generate", "{}", "one"), "expected a model to generate, got one to classify; try clearhead classify {}"),
        (("classify", "{}", "one", "--file", "a.csv"), "--file a.csv: expected it alone, got a text on the line too"),
        (("classify", "{}", "one", "--text", "a"), "--text: expected --file with a table, got none"),
        (
            ("classify", "{}", "--file", "a.csv", "--text", "bod"),
            "a.csv:1: expected a column 'bod', got none; try body",
        ),
        (("classify", "{}", "--file", "b.csv"), "b.csv:1: expected a column 'text', got n, m; give --text NAME, or"),
        (("classify", "{}", "--file", "a.txt", "--text", "b"), "a.txt: expected a table with columns, such as .csv or"),
        (
            ("classify", "{}", "--file", "a.csv", "--text-pair", "b"),
            "a.csv:1: expected a column 'b', got none; there are body, kind",
        ),
        (("classify", "{}", "--file", "c.jsonl"), "c.jsonl:2:text: expected text, got int"),
        (("classify", "{}", "one", "--out", "no/a.txt"), "no/a.txt: expected a file in a folder that is there, got no"),
        (
            ("classify", "{}", "one", "--labels", "a,b"),
            "labels: expected a model with a label entailment, got one with",
        ),
        (("classify", "{}", "one", "--several"), "--labels: expected labels beside --template and --several, got none"),
        (("answer", "{}", "--context", "a"), "answer: expected a question, got none; try clearhead answer MODEL"),
    ],
)
def test_mistakes_are_told_in_one_line(
    folder: str, arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
):
    Path("a.csv").write_text("body,kind\none,1\n", encoding="utf-8")
    Path("b.csv").write_text("n,m\none,1\n", encoding="utf-8")
    Path("c.jsonl").write_text('{"text": "one"}\n{"text": 2}\n', encoding="utf-8")
    Path("a.txt").write_text("one\n", encoding="utf-8")
    before = {*Path().iterdir()}
    with pytest.raises(SystemExit) as end:
        main([argument.format(folder) for argument in arguments])
    said = capsys.readouterr()
    assert end.value.code == 2
    assert told.format(folder) in said.err
    assert said.err.count("\n") == 1
    assert {*Path().iterdir()} == before, "no file is begun"


def test_labels_that_a_text_entails(capsys: pytest.CaptureFixture[str]):
    model = classifier(labels=("contradiction", "neutral", "entailment"), pairs=True)
    folder = str(model.save(Path("nli")))
    line = ["classify", folder, "one two", "", "--labels", "a, b", "--template", "this is about {}", "--json"]
    main(line)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    logits = torch.stack([model.logits("one two", f"this is about {label}") for label in "ab"])
    shares = dict(zip("ab", logits[:, 2].softmax(0).tolist(), strict=True))
    assert found[0]["probabilities"] == pytest.approx(shares, abs=1e-6)
    assert found[0]["label"] == max(shares, key=lambda label: shares[label])
    assert found[1] == {"input": ""}
    main([*line, "--several"])
    alone = json.loads(capsys.readouterr().out.splitlines()[0])["probabilities"]
    assert [alone[label] for label in "ab"] == pytest.approx(logits[:, [0, 2]].softmax(-1)[:, 1].tolist(), abs=1e-6)


def test_the_input_that_a_model_cannot_read_is_told_by_its_number(monkeypatch: pytest.MonkeyPatch):
    model = traced(
        CONFIGS["encoder_decoder_post"].model_copy(update={"encoder": stack(positions=c.Learned(max_length=6))})
    )
    model.network.double()
    long = "one " * 9
    with pytest.raises(UserError, match=r"^input 3: length \d+: this model's positions end at 6"):
        model.predict(["one", "", long, "two"])
    folder, lines = str(model.save(Path("translator"))), ["one", "two", "", long]
    Path("a.txt").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setattr(module, "LINES", 2)
    with pytest.raises(SystemExit):
        main(["predict", folder, "--file", "a.txt", "--out", "b.txt"])
    assert not Path("b.txt").exists()
