"""Data as they lie: what each form holds, which columns it has, and its rows."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from clearhead.data.containers import contents_of
from clearhead.data.guessing import guess
from clearhead.data.sniffing import sniff
from clearhead.errors import UserError
from clearhead.recipe.data import SquadFiles, Table, TaggedFiles
from clearhead.tasks.question_answering.data import QuestionData, read_questions
from clearhead.tasks.tagging.data import read_tagged
from tests.data.test_archives import zipped

ROWS = [{"text": f"the text number {i} is here", "label": "up" if i % 2 else "down"} for i in range(8)]
LISTS = [[row["text"], row["label"]] for row in ROWS]
LINES = [f"{row['label']} {row['text']}" for row in ROWS]
BY_LABEL = {name: [row["text"] for row in ROWS if row["label"] == name] for name in ("down", "up")}
COLUMNS = {name: [row[name] for row in ROWS] for name in ("text", "label")}
NAMED = ["text", "label"]


def texts(rows: list[dict[str, str]] = ROWS) -> dict[str, bytes]:
    return {f"{row['label']}/{i}": row["text"].encode() for i, row in enumerate(rows)}


TABLES: dict[str, tuple[str, Any, list[Any]]] = {
    "a list of objects": ("t.json", ROWS, NAMED),
    "a list of lists": ("t.json", LISTS, [0, 1]),
    "an object by split": ("t.json", {"val": LISTS, "oos_train": LISTS, "train": LISTS}, [0, 1]),
    "an object by label": ("t.json", BY_LABEL, NAMED),
    "columns": ("t.json", COLUMNS, NAMED),
    "columns with an index": ("t.json", {n: {str(i): c for i, c in enumerate(cs)} for n, cs in COLUMNS.items()}, NAMED),
    "columns, then rows": ("t.json", {"columns": NAMED, "index": [0], "data": LISTS}, NAMED),
    "rows by name": ("t.json", {f"r{i}": row for i, row in enumerate(ROWS)}, NAMED),
    "a list in an object": ("t.json", {"version": 1, "data": ROWS}, NAMED),
    "JSON lines": ("t.jsonl", "\n".join(map(json.dumps, ROWS)), NAMED),
    "JSON lines in a .json": ("t.json", "\n".join(map(json.dumps, ROWS)), NAMED),
    "records over several lines": ("t.json", "\n".join(json.dumps(row, indent=1) for row in ROWS), NAMED),
    "nested fields": ("t.jsonl", "\n".join(json.dumps({"a": row}) for row in ROWS), ["a.text", "a.label"]),
    "packed JSON": ("t.json.gz", gzip.compress(json.dumps(ROWS).encode()), NAMED),
    "label and text": ("t.label", "\n".join(f"DESC:{line}" for line in LINES), ["label", "fine_label", "text"]),
    "numbers and text": ("t.all", "\n".join(f"{len(row['label'])} {row['text']}" for row in ROWS), ["label", "text"]),
    "text and label": ("t.txt", "\n".join(f"{row['text']}@{row['label']}" for row in ROWS * 5), ["label", "text"]),
    "fastText": ("t.txt", "\n".join(f"__label__{line}" for line in LINES), ["label", "text"]),
    "tabs without a suffix": ("SMS", "\n".join(line.replace(" ", "\t", 1) for line in LINES), [0, 1]),
    "semicolons in a .txt": ("t.txt", "\n".join(f"{row['text']};{row['label']}" for row in ROWS), [0, 1]),
    "a folder for each class": ("d", texts() | {"README.txt": b"about", "urls.txt": b"http"}, NAMED),
    "parts and classes": ("d", {f"x/{p}/{n}": t for p in ("train", "test") for n, t in texts().items()}, NAMED),
    "a class without labels": ("d", texts() | {"unsup/1": b"text", ".DS_Store": b"?", "up/Thumbs.db": b"?"}, NAMED),
    "a zip of classes": ("d.zip", {f"x/{name}": text for name, text in texts().items()}, NAMED),
    "a zip with one table": ("t.zip", {"a/t.json": json.dumps(ROWS).encode(), "__MACOSX/a/._t.json": b"?"}, NAMED),
    "a file for each class": ("d", {f"rt.{n}": "\n".join(t).encode() for n, t in BY_LABEL.items()}, NAMED),
    "lists of texts with a label": (
        "t.json",
        {"intents": [{"tag": tag, "patterns": t, "responses": ["of one kind"]} for tag, t in BY_LABEL.items()]},
        NAMED,
    ),
    "texts beside labels and tags": (
        "d",
        {
            f"{split}/{name}": "\n".join(lines).encode()
            for split in ("train", "dev")
            for name, lines in {"label": COLUMNS["label"], "seq.in": COLUMNS["text"], "seq.out": ["O O"] * 8}.items()
        },
        NAMED,
    ),
    "texts beside labels": (
        "d",
        {"train_text.txt": "\n".join(COLUMNS["text"]).encode(), "train_labels.txt": "\n".join("12" * 4).encode()},
        NAMED,
    ),
}


def put(folder: Path, name: str, content: Any) -> Path:
    """Writes a file, a folder or an archive."""
    path = folder / name
    if isinstance(content, dict) and all(isinstance(inner, bytes) for inner in content.values()):
        if name.endswith(".zip"):
            return zipped(path, content)
        for inner, data in content.items():
            (path / inner).parent.mkdir(parents=True, exist_ok=True)
            (path / inner).write_bytes(data)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize("form", TABLES)
def test_tables(form: str, tmp_path):
    path = put(tmp_path, *TABLES[form][:2])
    assert (contents := contents_of(path))
    assert contents.kind == "table"
    found = sniff(path)
    assert sorted(map(str, found.columns)) == sorted(map(str, TABLES[form][2]))
    n = 40 if form == "text and label" else 8
    assert (found.n_rows, len(found.rows)) == (n, n)
    cells = [dict(zip(map(str, found.columns), row, strict=True)) for row in found.rows]
    said = sorted(cell for cell in map(str, cells[0].values()))
    assert any("the text number" in cell for cell in said)
    assert Table.model_validate(found.table.model_dump(mode="json")) == found.table


def test_splits_are_those_of_the_names_and_the_others_are_told(tmp_path):
    found = sniff(put(tmp_path, "t.json", TABLES["an object by split"][1]))
    assert (found.table.part, found.others["valid"].table.part) == ("train", "val")
    assert [one.value for one in found.decisions if one.what == "left out"] == ["oos_train"]
    page = {"features": [{"name": "text"}], "rows": [{"row": row} for row in ROWS * 2]}
    assert sniff(put(tmp_path, "page.json", page)).table.part == "rows"
    csv = "text,label\n" + "".join(f"{text},{label}\n" for text, label in LISTS)
    files = {"train.csv": csv, "dev.csv": csv, "GermEval_TestData.csv": "text\na\n", "labels.txt": "up\ndown\n"}
    found = guess(put(tmp_path, "d", {name: text.encode() for name, text in files.items()}))
    assert [Path(found.data[split]["path"]).name for split in ("train", "valid")] == ["train.csv", "dev.csv"]
    assert "test" not in found.data
    assert [one.what for one in found.decisions if one.value == "GermEval_TestData.csv"] == ["left out"]


def test_other_encodings_are_told(tmp_path):
    rows = [{**row, "text": f"café {row['text']}"} for row in ROWS]
    files = {name: text.decode().encode("cp1252") for name, text in texts(rows).items()}
    lines = "\n".join(f"DESC:{line} é" for line in LINES).encode("cp1252")
    for path in (put(tmp_path, "d", files), put(tmp_path, "t.label", lines)):
        found = sniff(path)
        assert found.table.encoding == "cp1252"
        assert any("é" in str(cell) for cell in found.rows[0])


END = "\t_" * 6 + "\n"
CONLL = {
    "CoNLL 2003": ("t.train", "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\nwins VBZ B-VP O\n \nI PRP B-NP O\n", (0, 3)),
    "tabs": ("w17.conll", "EU\tB-ORG\nwins\tO\n\t\nI\tO\n", (0, 1)),
    "tags first": ("t.bio", "B-ORG EU\nO wins\n\nO I\n", (1, 0)),
    "BIOES in a .txt": ("t.txt", "EU S-ORG\nwins O\n\nI O\n", (0, 1)),
    "GermEval": ("t.tsv", "#\tx\ty\t\n1\tEU\tB-ORG\tO\n2\twins\tO\tB-X\n\n#\tx\ty\t\n1\tI\tO\tO\n", (1, 2)),
    "CoNLL-U": (
        "t.conllu",
        f"# x\n1\tEU\t_\tNOUN{END}2\twins\t_\tVERB{END}\n1\tI\t_\tPRON{END}",
        (None, None),
    ),
}


@pytest.mark.parametrize("form", CONLL)
def test_words_with_tags(form: str, tmp_path):
    name, content, (words, tags) = CONLL[form]
    contents = contents_of(put(tmp_path, name, content))
    assert contents
    assert contents.kind == "tagged"
    assert (contents.data.get("words"), contents.data.get("label")) == (words, tags)
    found = read_tagged(TaggedFiles.model_validate(contents.sources["train"]), words, tags)
    assert [one.words for one in found] == [("EU", "wins"), ("I",)]
    assert found[0].tags[0] in ("B-ORG", "S-ORG", "NOUN")


@pytest.mark.parametrize("sign", "_/")
def test_words_with_a_sign_and_a_tag(sign: str, tmp_path):
    content = "EU_NNP wins_VBZ a_DT prize_NN ._.\nI_PRP win_VBP\n".replace("_", sign) * 20
    contents = contents_of(put(tmp_path, "t.txt", content))
    assert contents
    table = Table.model_validate(contents.sources["train"])
    found = read_tagged(table, None, contents.data["label"])
    assert [(one.words, one.tags) for one in found][1] == (("I", "win"), ("PRP", "VBP"))
    (tmp_path / "t.txt").write_text(f"{content}EU\n")
    with pytest.raises(UserError, match=r"t.txt:41: expected a tag after each word, got 'EU'"):
        read_tagged(table, None, "tags")


def test_rows_of_another_width_are_told_at_once(tmp_path):
    path = put(tmp_path, "t.conll", "a O\nb\n\nc O\nd O\n\ne O O O\n")
    source = TaggedFiles.model_validate({"paths": str(path)})
    with pytest.raises(UserError, match=r"t.conll:2: expected 2 columns.*\n.*t.conll:7: .*\n2 bad rows"):
        read_tagged(source, None, None)
    assert [one.words for one in read_tagged(source.model_copy(update={"skip_bad": True}), None, None)] == [("c", "d")]


QUESTION = {"question": "who ?", "context": "the cat sat", "answers": {"text": ["cat"], "answer_start": [4]}}
ASKED = [{"question": "who ?", "answers": [{"text": "cat", "answer_start": 4}]}]
SQUAD = {"paragraphs": [{"context": "the cat sat", "qas": ASKED}]}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.json", {"version": "2", "data": [SQUAD]}),
        ("t.json", [SQUAD]),
        ("t.json", [QUESTION]),
        ("t.json", {"data": [QUESTION]}),
        ("t.jsonl", json.dumps(QUESTION)),
        ("t.json", "\n".join(map(json.dumps, [QUESTION, QUESTION]))),
        ("t.json", [QUESTION | {"answers": [{"text": "cat", "answer_start": 4}]}]),
    ],
)
def test_questions_with_contexts(name: str, content: Any, tmp_path):
    contents = contents_of(put(tmp_path, name, content))
    assert contents
    assert contents.kind == "squad"
    source = SquadFiles.model_validate(contents.sources["train"])
    first = read_questions(source, QuestionData(train=source))[0]
    assert (first.question, first.answers[0].start) == ("who ?", 4)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("book.txt", "It was a dark night.\nThe rain fell.\n\nSo it was.\nAnd then?\n", "text"),
        ("recipe.json", {"task": "lm", "data": {}, "training": {}}, None),
        ("config.json", {"d_model": 4}, None),
        ("a.bin", b"\0\1\2", None),
        ("list.txt", "- milk\n- eggs\n\n- bread\n- salt\n", "text"),
        ("tagged.json", json.dumps([{"label": "a", "tokens": ["b", "c"]}] * 3), "table"),
    ],
)
def test_what_is_no_table(name: str, content: Any, kind: str | None, tmp_path):
    contents = contents_of(put(tmp_path, name, content))
    assert (contents and contents.kind) == kind


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        (
            "d",
            {"a.de": b"eins zwei\n" * 9, "a.en": b"one two\n" * 9},
            "got texts in de, en; try clearhead",
        ),
        ("d", {f"{n}/{p}.txt": b"x\n" for n in "ab" for p in ("train", "test")}, "several folders with splits: a, b"),
        ("t.xlsx", b"PK", "expected a table or text, got a workbook; save it as CSV or JSON lines"),
        ("t.xml.gz", b"?", "got XML; save it"),
        ("t", "<reviews>\n  <review>\nGood\n", "got XML; save it"),
        (
            "t.json",
            [{"text": "a", "spans": [{"start": 0, "end": 1, "label": ""}]}],
            "got spans of characters in 'spans'",
        ),
        ("t.yml", "nlu:\n- intent: a\n", "got YAML; save it"),
        ("t.md", "## intent:a\n- hello\n- hi\n", "got Markdown of Rasa; save it"),
        ("heart", "+1 1:0.7 2:1\n-1 1:0.5 3:-1 \n", "got pairs of index:value; save it"),
        (
            "d",
            {f"train.{n}": "\n".join(f"{n} " * (i * 7 % 5) + "x" for i in range(90)).encode() for n in ("src", "tgt")},
            "got texts in src, tgt; try clearhead train translation",
        ),
        (
            "d",
            {"d.csv": b"file,label\n0,up\n1,down\n", "all/0.txt": b"good text", "all/1.txt": b"bad text"},
            "d.csv: expected the texts, got the names of their files",
        ),
        ("t.json", '[{"text": "a"},\n {"text": ', "t.json:2: expected JSON"),
        ("d.zip", {"a.png": b"?"}, "expected a folder of pictures, got an archive of them; unpack it first"),
    ],
)
def test_what_may_be_meant_in_several_ways_is_told(name: str, content: Any, told: str, tmp_path):
    with pytest.raises(UserError) as error:
        contents_of(put(tmp_path, name, content))
    assert told in str(error.value)


def test_a_field_that_some_rows_lack_is_empty_there(tmp_path):
    path = put(tmp_path, "t.jsonl", '{"text": "a", "x": 1}\n{"text": "b", "x": {"y": 2}}\n{"text": "c"}\n')
    found = sniff(path)
    assert (found.columns, found.rows[2]) == (["text", "x", "x.y"], ["c", None, None])
