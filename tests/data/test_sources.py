"""Every reader on what it should read, and on what it should refuse in one line that names the place."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from clearhead.data import files
from clearhead.data.sources import Pairs, read_pairs, read_texts
from clearhead.errors import UserError
from clearhead.recipe.data import Data, HubDataset, ParallelFiles, Source, Table, TextFiles
from tests.files import put


def refusal(source: Source) -> str:
    with pytest.raises(UserError) as error:
        (read_pairs if source.is_paired else read_texts)(source)
    assert "\n" not in str(error.value)
    return str(error.value)


# --- parallel files ---


def test_parallel_files_in_every_dress(tmp_path):
    """A byte order mark, CRLF, no last line end, a separator inside a line, gzip: no difference."""
    plain = ParallelFiles(
        source=(put(tmp_path / "a.en", "a man\n\nx\u2028y\n"),),
        target=(put(tmp_path / "a.de", "\ufeffein Mann\r\n\r\nz"),),
    )
    packed = ParallelFiles(
        source=(put(tmp_path / "b.en.gz", gzip.compress("a man\n\nx\u2028y".encode())),),
        target=(put(tmp_path / "b.de", gzip.compress(b"ein Mann\n\nz\n")),),
    )
    expected = Pairs(["a man", "", "x\u2028y"], ["ein Mann", "", "z"])
    assert read_pairs(plain) == read_pairs(packed) == expected


def test_several_files_and_patterns(tmp_path):
    for name, text in (("b.en", "3"), ("a.en", "1\n2"), ("b.de", "drei"), ("a.de", "eins\nzwei")):
        put(tmp_path / name, text)
    wanted = Pairs(["1", "2", "3"], ["eins", "zwei", "drei"])
    pattern = Data.model_validate(
        {"folder": tmp_path, "train": {"kind": "parallel", "source": "*.en", "target": "[ab].de"}}
    )
    assert read_pairs(pattern.sources["train"]) == wanted
    listed = ParallelFiles(source=(tmp_path / "a.en", tmp_path / "b.en"), target=(tmp_path / "a.de", tmp_path / "b.de"))
    assert read_pairs(listed) == wanted
    one = ParallelFiles(source=listed.source, target=listed.target[:1])
    assert "expected as many files of source and of target, got 2 and 1" in refusal(one)
    none = ParallelFiles(source=(Path("*.fr"),), target=(Path("a.de"),)).under(tmp_path)
    assert f"{tmp_path / '*.fr'}: expected a file, got none" in refusal(none)


@pytest.mark.parametrize(
    ("source", "target", "says"),
    [
        (b"1\n2\n3\n", b"1\n2\n", "{a} and {b}: expected as many lines in both, got 3 and 2; try"),
        *((blank, b"1\n", "{a}: expected text, got an empty file; try") for blank in (b"", b"\n\n", b"\xef\xbb\xbf")),
        (b"1\n2\n3\n", b"ja\nM\xe4nner\nnein\n", "{b}:2: expected UTF-8, got the byte 0xE4; try"),
        (b"1\n2\n3\n", "1\n2\n3\n".encode("utf-16")[:-1], "{b}: expected text in utf-16, got "),
        (gzip.compress(b"one line\n" * 100, mtime=0)[:-20], b"1\n", "{a}: expected a whole packed file, got"),
    ],
)
def test_what_cannot_be_read(source: bytes, target: bytes, says: str, tmp_path):
    a, b = put(tmp_path / "a.en", source), put(tmp_path / "a.de", target)
    assert refusal(ParallelFiles(source=(a,), target=(b,))).startswith(says.format(a=a, b=b))


def test_a_missing_file_and_the_nearest_name(tmp_path):
    a = put(tmp_path / "train.en", "1\n")
    wrong = tmp_path / "trian.en"
    assert refusal(ParallelFiles(source=(wrong,), target=(a,))) == f"{wrong}: expected a file, got none; try {a}"
    for path, says in {
        tmp_path / "x" / "y": "there is no folder",
        tmp_path: "got a folder; try",
        tmp_path / "a\0b": "expected the name of a file, got embedded null byte",
    }.items():
        assert says in refusal(TextFiles(paths=(path,)))


@pytest.mark.parametrize("line", [b"\0" * 99, b"one line\n"], ids=["zeros", "lines"])
def test_a_gzip_file_that_unpacks_to_far_too_much(line: bytes, tmp_path, monkeypatch):
    unpacked = 1 << 21
    monkeypatch.setattr(files, "UNPACKED", unpacked)
    path = put(tmp_path / "a.tsv.gz", gzip.compress(line * ((1 << 22) // len(line))))
    for source in (TextFiles(paths=(path,)), ParallelFiles(source=(path,), target=(path,)), Table(path=path, text=0)):
        message = refusal(source)
        assert message.startswith(f"{path}: expected at most 200 times its packed size, got 2,"), "before its end"
    packed = gzip.compress(np.random.default_rng(0).integers(97, 123, unpacked, np.uint8).tobytes() + b"\n")
    assert len(read_texts(TextFiles(paths=(put(tmp_path / "b.gz", packed),)))[0]) == unpacked + 1


def test_a_parquet_file_that_unpacks_to_far_too_much(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    for rows in (["x" * 20_000_000] * 2, ["x" * 1000] * 70_000):
        parquet.write_table(pa.table({"text": pa.array(rows)}), path, compression="zstd", use_dictionary=len(rows) > 9)
        assert refusal(Table(path=path, text="text")).startswith(f"{path}: expected at most 200 times its packed size")


def test_a_line_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 1 << 17)
    path = put(tmp_path / "a", "one\n" + "x" * (1 << 18))
    assert refusal(ParallelFiles(source=(path,), target=(path,))).startswith(
        f"{path}:2: expected at most 131,072 characters"
    )


# --- tables ---

PAIRS = Pairs(['a "man"', "b"], ["ein Mann, ja", "c"])


@pytest.fixture
def tables(tmp_path) -> dict[str, Path]:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"id": i, "x": {"en": s, "de": t}} for i, (s, t) in enumerate(zip(PAIRS.source, PAIRS.target, strict=True))]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    return {
        "tsv": put(tmp_path / "t.tsv", 'id\ten\tde\n\n0\ta "man"\tein Mann, ja\n1\tb\tc\r\n'),
        "csv": put(tmp_path / "t.csv", 'id,en,de\r\n0,"a ""man""","ein Mann, ja"\r\n\r\n1,b,c\r\n'),
        "jsonl": put(tmp_path / "t.jsonl", "\n".join(map(json.dumps, rows)) + "\n\n"),
        "parquet": tmp_path / "t.parquet",
    }


def test_pairs_from_every_table(tables: dict[str, Path]):
    for kind in ("tsv", "csv"):
        named = Table(path=tables[kind], source="en", target="de", header=True)
        counted = Table(path=tables[kind], source=1, target=2, header=True)
        assert read_pairs(named) == read_pairs(counted) == PAIRS
        without = Table(path=tables[kind], source=1, target=2)
        assert read_pairs(without).source == ["en", *PAIRS.source], "a header is one only when the config says so"
    for kind in ("jsonl", "parquet"):
        assert read_pairs(Table(path=tables[kind], source="x.en", target="x.de")) == PAIRS


def test_one_column_is_text(tables: dict[str, Path]):
    assert read_texts(Table(path=tables["csv"], text="de", header=True)) == PAIRS.target


def test_a_missing_column_and_the_nearest_name(tables: dict[str, Path]):
    message = refusal(Table(path=tables["tsv"], source="en", target="dee", header=True))
    assert message == f"{tables['tsv']}:1: expected a column 'dee', got none; try de"
    assert "expected a field 'en_', got none; try en" in refusal(Table(path=tables["jsonl"], text="x.en_"))
    assert "expected a column 'y', got none; there are id, x" in refusal(Table(path=tables["parquet"], text="y"))
    assert "try header = true" in refusal(Table(path=tables["tsv"], source="en", target="de"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.tsv", "a\tb\n\nc\n", ":3: expected at least 2 columns, got 1; try another delimiter"),
        ("t.tsv", "a\tb\nc\td\te\n", ":2: expected 2 columns as in the first line, got 3; take the delimiter out"),
        ("t.csv", "a,b\n\nc,d, e\n", ":3: expected 2 columns as in the first line, got 3; quote the text"),
        ("t.csv", 'a,b\n"c\nd",e\n"f', ":4: expected CSV, got "),
        (
            "t.jsonl",
            '{"0": "x", "1": "y"}\n{"0": ',
            ":2: expected JSON, got expecting value (column 6); try one JSON object a line",
        ),
        ("t.jsonl", '{"0": "x", "1": "y"}\n{"0": ' + "[" * 100_000, ":2: expected at most 100 levels of tables and"),
        ("t.jsonl", '{"0": ' + "[" * 101 + "]" * 101 + "}", ":1: expected at most 100 levels of tables and lists"),
        ("t.jsonl", '{"0": ' + "9" * 5000 + "}", ":1: expected numbers, got one of thousands of digits"),
        ("t.jsonl", '{"0": "\\ud800"}', ":1: expected text, got half a character"),
        ("t.jsonl", '{"0": "x", "1": 5}', ":1:1: expected text, got int"),
        ("t.jsonl", "[1]", ":1: expected a field '1', got none; there are 0"),
        ("t.parquet", "PAR1 nonsense", ": expected parquet, got "),
        ("t.xls", "a", ": expected a name in .tsv"),
        ("t.tsv", b"a\tb\n\xff\tc\n", ":2: expected UTF-8, got the byte 0xFF"),
    ],
)
def test_a_malformed_table(name: str, content: str | bytes, message: str, tmp_path):
    path = put(tmp_path / name, content)
    assert refusal(Table(path=path, source=0, target=1)).startswith(f"{path}{message}")


def test_a_table_that_is_a_header_alone(tmp_path):
    path = put(tmp_path / "t.tsv", "en\tde\n")
    assert "got only a header" in refusal(Table(path=path, source="en", target="de", header=True))


# --- text ---


def test_documents(tmp_path):
    one = put(tmp_path / "1.txt", "\n\na\nb\n\n \n  c\r\n")
    two = put(tmp_path / "2.txt", "d\n")

    def texts(documents: str) -> list[str]:
        return read_texts(TextFiles.model_validate({"paths": [one, two], "documents": documents}))

    assert texts("file") == ["\n\na\nb\n\n \n  c\n", "d\n"]
    assert texts("line") == ["", "", "a", "b", "", " ", "  c", "d"]
    assert texts("blank_line") == ["a\nb", "  c", "d"]


def test_the_wrong_kind(tmp_path):
    path = put(tmp_path / "a", "x\n")
    with pytest.raises(UserError, match=r"text: expected pairs of source and target, got single texts; try"):
        read_pairs(TextFiles(paths=(path,)))
    with pytest.raises(UserError, match=r"parallel: expected single texts, got pairs .*; try"):
        read_texts(ParallelFiles(source=(path,), target=(path,)))


@pytest.mark.parametrize(
    "fields", [{"kind": "table", "path": "x"}, {"kind": "table", "path": "x", "source": 0}, {"kind": "csv"}]
)
def test_a_source_is_checked_before_it_is_read(fields: dict[str, object]):
    with pytest.raises(ValidationError, match=r"columns: expected source and target|kind"):
        TypeAdapter(Source).validate_python(fields)


# --- datasets ---


def test_a_folder_of_a_dataset(tables: dict[str, Path], tmp_path):
    datasets = pytest.importorskip("datasets")
    folder = tmp_path / "saved"
    rows = {"x": [{"en": s, "de": t} for s, t in zip(PAIRS.source, PAIRS.target, strict=True)]}
    splits = datasets.DatasetDict({"train": datasets.Dataset.from_dict(rows)})
    splits.save_to_disk(str(folder))
    assert read_pairs(HubDataset(name=str(folder), source="x.en", target="x.de")) == PAIRS
    assert read_pairs(HubDataset(name=str(folder / "train"), source="x.en", target="x.de")) == PAIRS
    lost = refusal(HubDataset(name=str(folder), split="tran", text="x.en"))
    assert lost == f"{folder}: expected a split 'tran', got none; try train"
    assert "expected a column 'text', got none; there are x" in refusal(HubDataset(name=str(folder), text="text"))


def test_a_dataset_out_of_reach():
    pytest.importorskip("datasets")
    message = refusal(HubDataset(name="nobody/nothing", text="text"))
    assert message.startswith("nobody/nothing: expected a dataset, got ")


def test_real_files(shared_data: Path):
    folder = shared_data / "tatoeba"
    pairs = read_pairs(Table(path=folder / "en-de.train.tsv.gz", source=0, target=1))
    assert len(pairs) == len(pairs.target) == 165_034
    texts = read_texts(TextFiles(paths=tuple((shared_data / "tinyshakespeare").glob("*.txt"))))
    assert len(texts[0].encode()) == 1_115_394
