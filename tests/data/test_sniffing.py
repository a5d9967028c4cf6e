"""Small tables in the forms that published ones have: how they are written is found, told, and read back."""

import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clearhead.data import blocks, encodings
from clearhead.data.bad_rows import BadRows, RowErrors
from clearhead.data.delimited import read_delimited
from clearhead.data.sniffing import SAMPLE, Sniffed, draw, sniff
from clearhead.data.sources import read_texts
from clearhead.data.tables import read_cells, read_rows
from clearhead.errors import UserError
from clearhead.recipe.data import Table, TextFiles
from tests.files import put

WORDS = ["a great film", "I was bored all the time", "it has its moments", "why did they make this one?"]
LABELS = ["good", "bad"]


def rows(n: int = 12) -> list[list[str]]:
    return [[f"{WORDS[i % 4]} {i}", LABELS[i % 2]] for i in range(n)]


def lines(separator: str, *, header: str = "", first: str = "", last: str = "") -> str:
    return header + "".join(f"{first}{separator.join(row)}{last}\n" for row in rows())


def cells(found: Sniffed) -> list[list[object]]:
    """The rows as the description of the table reads them again, without the columns that are left out."""
    table = Table.model_validate_json(found.table.model_dump_json())
    errors = RowErrors()
    result = [row for _, row in read_cells(table, found.columns, errors)]
    assert not errors.rows
    return result


def told(found: Sniffed) -> list[tuple[str, str]]:
    return [(one.what, one.value) for one in found.decisions]


QUOTED = 'text,label\n"one, two ""three"" four",good\n"two\nlines of it",bad\n' + lines(",")
GLUE = "index\tsentence1\tsentence2\tgold\n" + "".join(
    f'{i}\t"{WORDS[i % 4]}" {i}\t"so it is\tgood\n' for i in range(9)
)
SPAM = "v1,v2,,,\n" + "".join(f"{label},{text} \xa35 a caf\xe9,,,\n" for text, label in rows())
NUMBERED = ",text,label\n" + "".join(f"{i},{','.join(row)}\n" for i, row in enumerate(rows()))
LATE = "text\tlabel\n" + "so it is\tgood\n" * 1100 + '"So," he said\tbad\n"So it\tgood\n'
FORMS: dict[str, tuple[str, bytes | str, list[Any], list[tuple[str, str]]]] = {
    "plain": ("t.csv", lines(",", header="text,label\n"), ["text", "label"], []),
    "mark": ("t.csv", b"\xef\xbb\xbf" + lines(",", header="text,label\n").encode(), ["text", "label"], []),
    "utf16": (
        "t.csv",
        lines("\t", header="text\tlabel\n").encode("utf-16"),
        ["text", "label"],
        [("encoding", "utf-16"), ("columns", "tabs between them")],
    ),
    "utf16 without mark": (
        "t.csv",
        lines(",", header="text,label\n").encode("utf-16-be"),
        ["text", "label"],
        [("encoding", "utf-16-be")],
    ),
    "Cyrillic utf16 without mark": (
        "t.csv",
        "".join(f"Лев Толстой написал это {i},хорошо\n" for i in range(30)).encode("utf-16-le"),
        [0, 1],
        [("encoding", "utf-16-le"), ("header", "none; columns have numbers from 0")],
    ),
    "quotes and newlines": ("t.csv", QUOTED, ["text", "label"], []),
    "quoted TSV": ("t.tsv", QUOTED.replace(",", "\t"), ["text", "label"], [("quotes", '"')]),
    "stray quotes": ("t.tsv", GLUE, ["index", "sentence1", "sentence2", "gold"], []),
    "escaped": (
        "t.csv",
        lines(",", header='text,label\n"say \\"so\\", do",good\n"a \\"b\\" c",bad\n'),
        ["text", "label"],
        [("quotes", '", with \\ before one inside a cell')],
    ),
    "spam.csv": (
        "t.csv",
        SPAM.encode("latin-1"),
        ["v1", "v2", 2, 3, 4],
        [("encoding", "cp1252")],
    ),
    "pandas' index": ("t.csv", NUMBERED, [0, "text", "label"], []),
    "index without a name in its header": ("t.csv", NUMBERED[1:], ["text", "label"], []),
    "repeated names": ("t.csv", lines(",", header="id,text,text,label\n", first="x,y,"), ["id", 1, 2, "label"], []),
    "trailing delimiter": ("t.csv", lines(",", header="text,label\n", last=","), ["text", "label"], []),
    "trailing delimiter everywhere": (
        "t.csv",
        lines(",", header="text,label,\n", last=","),
        ["text", "label", 2],
        [],
    ),
    "Excel": (
        "t.csv",
        lines(";", header="sep=;\ntext;label\n"),
        ["text", "label"],
        [("columns", "semicolons between them"), ("left out", "the line before the table")],
    ),
    "comments": (
        "t.csv",
        lines(",", header="# a, b and c\n# licence\ntext,label\n"),
        ["text", "label"],
        [("left out", "2 lines before the table")],
    ),
    "a header behind #": ("t.tsv", lines("\t", header="#text\tlabel\n"), ["#text", "label"], []),
    "carriage returns": ("t.tsv", lines("\t", header="text\tlabel\n").replace("\n", "\r"), ["text", "label"], []),
    "blank lines": (
        "t.csv",
        lines(",", header="\ntext,label\n\n").replace("good\n", "good\n\n"),
        ["text", "label"],
        [],
    ),
    "rows of nothing": ("t.csv", lines(",", header="text,label\n", last="\n,"), ["text", "label"], []),
    "quotes as characters, late": (
        "t.txt",
        LATE,
        ["text", "label"],
        [("columns", "tabs between them"), ("quotes", "none")],
    ),
    "quotes around cells, late": (
        "t.tsv",
        "text\tlabel\n" + "so it is\tgood\n" * 1100 + '"So,\nhe said"\tbad\n',
        ["text", "label"],
        [("quotes", '"')],
    ),
    "commas in a .tsv": (
        "t.tsv",
        lines(",", header="text,label\n"),
        ["text", "label"],
        [("columns", "commas between them")],
    ),
    "a .txt": ("t.txt", lines("|", header="text|label\n"), ["text", "label"], [("columns", "bars between them")]),
    "no header": (
        "t.csv",
        lines(","),
        [0, 1],
        [("header", "none; columns have numbers from 0")],
    ),
    "no header, words": (
        "t.tsv",
        "ham\tok lar\nspam\twin now\nham\tsee you\nham\tso what\n",
        [0, 1],
        [("header", "none; columns have numbers from 0")],
    ),
    "two more cells in some rows": (
        "t.csv",
        "".join(f'{i / 4}\t{i} words\t"so\t{i % 2}' + "\ta\tb" * (i > 19) + "\n" for i in range(40)),
        [0, 1, 2, 3],
        [
            ("columns", "tabs between them"),
            ("quotes", "none"),
            ("left out", "2 cells after the last column"),
            ("header", "none; columns have numbers from 0"),
        ],
    ),
    "languages": ("t.csv", "en,de\n" + "".join(f"the house {i},das Haus {i}\n" for i in range(9)), ["en", "de"], []),
    "years": (
        "t.csv",
        "text,2019,2020\n" + "".join(f"{text},{i},{i / 2}\n" for i, (text, _) in enumerate(rows())),
        ["text", "2019", "2020"],
        [],
    ),
    "questions above answers": (
        "t.csv",
        "When?,How did you like all of it?,What else would you like to tell us?\n"
        + "".join(f"3/{i + 1}/2024 9:{i + 10}:11,{LABELS[i % 2]},{WORDS[i % 4]} {i}\n" for i in range(25)),
        ["When?", "How did you like all of it?", "What else would you like to tell us?"],
        [],
    ),
    "decimal commas": (
        "t.csv",
        "text;price\n" + "".join(f"{text}, or so;{i},5\n" for i, (text, _) in enumerate(rows())),
        ["text", "price"],
        [("columns", "semicolons between them")],
    ),
    "French with a broken byte": (
        "t.csv",
        b"avis,note\n"
        + "Très déçu et ça a été annulé,bad\nOù est le café agréable,good\n".encode("cp1252") * 20
        + b"\x81,bad\n",
        ["avis", "note"],
        [("encoding", "cp1252"), ("bytes", "replaced in 1 of 41 rows")],
    ),
    "names that are counts": ("t.csv", lines(",", header="0,1\n"), ["0", "1"], []),
}


@pytest.mark.parametrize("form", FORMS)
def test_how_a_table_is_written_is_found_and_told(form: str, tmp_path: Path):
    name, content, columns, decisions = FORMS[form]
    path = tmp_path / name
    put(path, content.encode() if isinstance(content, str) else content)
    found = sniff(path)
    assert found.columns == columns
    assert told(found) == decisions
    assert cells(found) == found.rows
    assert len(found.rows) == found.n_rows >= 4
    assert all(map(any, found.rows))


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0\x1c\x1d\x1e\x85\u2028\u2029"), max_size=12)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(CELLS, min_size=6, max_size=12),
    form=st.fixed_dictionaries(
        {
            "sep": st.sampled_from(",;\t|"),
            "quoting": st.sampled_from([0, 1, 2]),
            "index": st.booleans(),
            "encoding": st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
            "lineterminator": st.sampled_from(["\n", "\r\n"]),
        }
    ),
    suffix=st.sampled_from(["csv", "tsv", "csv.gz"]),
)
def test_what_pandas_wrote_is_read_back(texts: list[str], form: dict[str, Any], suffix: str, tmp_path: Path):
    frame = pd.DataFrame(
        {
            "text": [f"{i} words {text}." for i, text in enumerate(texts)],
            "label": ["a", "b"] * 3 + ["a"] * (len(texts) - 6),
        }
    )
    path = tmp_path / f"t.{suffix}"
    frame.to_csv(path, **form)
    found = sniff(path, given={"text": "text", "label": "label"})
    assert [list(row) for row in frame.itertuples(index=False)] == [
        [*row] for row in read_rows(found.table, ["text", "label"])
    ]


def test_what_is_given_is_not_guessed_over(tmp_path: Path):
    path = tmp_path / "t.csv"
    put(path, NUMBERED)
    assert sniff(path, given={"text": "0"}).columns == [0, "text", "label"]
    found = sniff(path, given={"header": False, "delimiter": ";", "encoding": "latin-1", "text": "0"})
    table = found.table
    assert (table.header, table.delimiter, table.encoding, found.columns) == (False, ";", "latin-1", [0])


def test_a_sample_is_of_the_whole_table(tmp_path: Path):
    """A table that is sorted by its labels shows all of them."""
    path, n = tmp_path / "t.csv", 3 * SAMPLE
    put(path, "text,label\n" + "".join(f"words of {i},{i * 77 // n}\n" for i in range(n)))
    found = sniff(path)
    assert (found.n_rows, len(found.rows), len({row[1] for row in found.rows})) == (n, SAMPLE, 77)
    assert found.rows == sniff(path).rows
    assert draw([[1], [2], [3]], most=5) == ([[1], [2], [3]], 3)


def test_a_byte_far_into_the_file_decides_its_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(encodings, "HEAD", 1 << 12)
    path = tmp_path / "t.csv"
    plain = "text,label\n" + "some words of a text,good\n" * 400
    put(path, (plain + "caf\xe9 au lait,bad\n").encode("cp1252"))
    assert told(sniff(path)) == [("encoding", "cp1252")]
    put(path, (plain.replace("words", "w\xf6rds")).encode() + b"caf\xe9,bad\n")
    found = sniff(path)
    assert told(found) == [("bytes", "replaced in 1 of 401 rows")]
    assert found.decisions[0].why == f"{path}:402: expected UTF-8, got the byte 0xE9"
    assert cells(found)[-1] == ["caf\ufffd", "bad"]
    assert told(sniff(path, given={"encoding": "utf-8"})) == [("bad rows", "1 of 401")]


BAD = 'text,label\n"fine, fine",good\none, two, three,bad\n"never closed,good\nmore words,bad\nlast words,good\n'


def test_bad_rows_are_told_at_once_or_left_out(tmp_path: Path):
    path = tmp_path / "t.csv"
    put(path, BAD)
    table = sniff(path).table
    with pytest.raises(BadRows) as error:
        [*read_rows(table, ["text", "label"])]
    assert str(error.value).splitlines() == [
        f"{path}:3: expected 2 columns as in the first line, got 4; quote the text that has the delimiter",
        f"{path}:4: expected CSV, got unexpected end of data; close or double the quotes, or set data.train.quotes",
        "2 bad rows; --skip-bad leaves them out",
    ]
    skipping = table.model_copy(update={"skip_bad": True})
    assert [*read_rows(skipping, ["text"])] == [("fine, fine",), ("more words",), ("last words",)]
    put(path, "label,text\ngood,fine\n" + "bad,so, it is\n" * 30)
    assert sniff(path).columns == ["label", "text"]
    put(path, "text,label\nfine,good\n" + "a,b,c\n" * 30)
    with pytest.raises(BadRows, match=r":22: .*\nand 10 more; --skip-bad leaves them out$"):
        [*read_rows(table, ["text"])]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "expected"),
        (b"text,label\n", "expected rows, got only a header"),
        (b"my_text\nit is so good a day\nbut why is it\n", r"--text my_text to learn from the texts alone"),
        (b"\xff\xfet\0", "expected"),
    ],
)
def test_a_table_that_is_none_is_one_line(content: bytes, says: str, tmp_path: Path):
    put(tmp_path / "t.csv", content)
    with pytest.raises(UserError, match=says) as error:
        sniff(tmp_path / "t.csv")
    assert "\n" not in str(error.value)


def test_text_with_a_mark_of_another_encoding_is_read(tmp_path: Path):
    put(tmp_path / "t.txt", "ein schöner Tag\n".encode("utf-16"))
    assert read_texts(TextFiles(paths=(tmp_path / "t.txt",))) == ["ein schöner Tag\n"]


def test_a_large_table_is_read_in_blocks_as_a_small_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Every kind of row: quotes, newlines, blank lines, carriage returns, other widths, bad bytes, wrong quotes."""
    monkeypatch.setattr(blocks, "BLOCK", 64)
    rng, path = random.Random(0), tmp_path / "t.csv"
    parts = [
        b"a b,c,1",
        b'"x, y",c,2',
        b'"two\nlines ""so""",d,3',
        b"",
        b",,",
        b"caf\xc3\xa9,e,4\r",
        b'"",,5',
        b"a,b,c,,",
        b"f,g,6",
    ]
    odd = [b"\xff,h,7", b"too,many,cells,here", b"short", b'"never closed,i,8', b'"x"y,j,9', b"lone\rreturn,k,10"]
    for trial in range(60):
        chosen = rng.choices(parts, k=20) + rng.choices(odd, k=trial % 3)
        rng.shuffle(chosen)
        put(path, b"\n".join([b"text,label,n", *chosen]) + b"\n" * (trial % 2))
        for table in (Table(path=path, text=0, header=True), Table(path=path, text=0, quotes="", skip_lines=2)):
            wanted = [0, 2] if trial % 2 else [0]
            results = []
            for large in (1 << 40, 0):
                monkeypatch.setattr(blocks, "LARGE", large)
                errors = RowErrors()
                read = [*read_delimited(table, wanted, errors)]
                results.append((read, [*map(str, errors.rows)]))
            assert results[0][0] == results[1][0], (path.read_bytes(), table)
            assert results[0][1] == results[1][1]
