"""Files by their addresses, and packed ones: the same rows as from a plain path, the same refusals."""

import gzip
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from clearhead.data import files
from clearhead.data.bad_rows import RowErrors
from clearhead.data.sources import cells_of, read_pairs, read_texts
from clearhead.errors import UserError
from clearhead.recipe.data import Data, HubDataset, ParallelFiles, Source, Table, TextFiles
from clearhead.recipe.places import Place, Url, absolute, place
from tests.later import later

fsspec = pytest.importorskip("fsspec")
pa = later("pyarrow")
CSV = b"en,de\none,eins\ntwo,zwei\n"
PAIRS = [("one", "eins"), ("two", "zwei")]


@pytest.fixture(autouse=True)
def _memory() -> None:
    fsspec.filesystem("memory").store.clear()


def put(address: str, content: bytes) -> str:
    with fsspec.open(address, "wb") as file:
        file.write(content)
    return address


def zstd(content: bytes) -> bytes:
    return pa.compress(content, codec="zstd", asbytes=True)


def table(address: object) -> Table:
    return Table.model_validate({"path": address, "header": True, "source": "en", "target": "de"})


def test_a_place_is_an_address_or_a_path():
    read = TypeAdapter(Place)
    assert type(read.validate_python("s3://b/a.csv")) is Url
    assert isinstance(read.validate_json('"a/b.csv"'), Path)
    assert type(read.validate_json('"memory://a.csv"')) is Url
    assert (absolute("memory://a.csv"), absolute("a.csv")) == ("memory://a.csv", str(Path("a.csv").absolute()))
    assert place("C:a.csv") == Path("C:a.csv")
    source = table("memory://a//b.csv")
    assert TypeAdapter(Source).validate_json(source.model_dump_json()) == source
    assert source.under(Path("folder")) == source


@pytest.mark.parametrize("packed", [bytes, gzip.compress, zstd])
@pytest.mark.parametrize("kind", ["memory", "file", "path"])
def test_rows_are_the_same_from_anywhere(kind: str, packed, tmp_path):
    """Two members or frames of a packed file are read as one."""
    content = packed(CSV[:10]) + packed(CSV[10:])
    address = {"memory": "memory://d/t.csv.gz", "file": f"file://{tmp_path}/t.csv.zst", "path": str(tmp_path / "t.csv")}
    source = table(put(address[kind], content))
    assert [*read_pairs(source)] == PAIRS
    assert [where for where, _ in cells_of(source, ["en"], RowErrors())] == [
        f"{address[kind]}:{line}" for line in (2, 3)
    ]


def test_parquet_text_and_patterns(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"en": a, "de": b} for a, b in PAIRS]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    put("memory://d/t.parquet", (tmp_path / "t.parquet").read_bytes())
    assert [*read_pairs(table("memory://d/t.parquet"))] == PAIRS
    for name in "ba":
        put(f"memory://d/{name}.en", f"{name}\n".encode())
        put(f"memory://d/{name}.de", zstd(f"{name}{name}\n".encode()))
    data = Data.model_validate(
        {"train": {"kind": "parallel", "source": "memory://d/*.en", "target": "memory://d/*.de"}}
    )
    assert [*read_pairs(data.sources["train"])] == [("a", "aa"), ("b", "bb")]
    assert read_texts(TextFiles.model_validate({"paths": ["memory://d/a.en"]})) == ["a\n"]


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("memory://d/no.csv", "memory://d/no.csv: expected a file, got none; check the address"),
        ("nothing://d/a.csv", "nothing://d/a.csv: expected an address that fsspec opens, got Protocol not known"),
        ("memory://d/latin.csv", "memory://d/latin.csv:2: expected UTF-8, got the byte 0xE4"),
        ("memory://d/cut.csv.zst", "memory://d/cut.csv.zst: expected a readable file, got Truncated"),
        ("memory://d/bomb.csv.zst", "expected at most 200 times its packed size"),
        ("memory://d/a.parquet", "expected parquet, got a packed file; try unpacking it first"),
        ("memory://d/other.csv", "expected a column 'en', got none"),
    ],
)
def test_what_cannot_be_read_is_one_line(address: str, says: str, monkeypatch):
    monkeypatch.setattr(files, "UNPACKED", 1 << 18)
    put("memory://d/latin.csv", b"en,de\nM\xe4nner,men\n")
    put("memory://d/cut.csv.zst", zstd(CSV)[:-3])
    put("memory://d/bomb.csv.zst", zstd(b"en,de\n" + b"a,b\n" * (1 << 18)))
    put("memory://d/a.parquet", zstd(CSV))
    put("memory://d/other.csv", b"english;de\none;eins\n")
    with pytest.raises(UserError) as error:
        read_pairs(table(address))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_dataset_is_streamed(tmp_path):
    pytest.importorskip("datasets")
    (tmp_path / "train.jsonl").write_text('{"x": {"en": "one"}, "n": 1}\n{"x": {"en": "two"}, "n": 2}\n')
    wanted = HubDataset(name=str(tmp_path), text="x.en", streaming=True)
    assert read_texts(wanted) == ["one", "two"]
    with pytest.raises(UserError, match="expected a column 'y', got none; there are x, n"):
        read_texts(HubDataset(name=str(tmp_path), text="y", streaming=True))
    pairs = ParallelFiles.model_validate({"source": ["a", "b"], "target": "c"})
    assert pairs.files == [Path("a"), Path("b"), Path("c")]
