"""Files in zip archives: read as those of a folder, and refused in one line where they are no good."""

import bz2
import gzip
import lzma
import zipfile
from pathlib import Path

import pytest

from clearhead.data.files import files_in, read_files, read_lines
from clearhead.errors import UserError
from tests.files import put

FILES = {"d/a.csv": b"x,y\n\xc3\xa4,1\n", "d/e/b.txt": b"text\n", "/c.txt": b"c\n"}
JUNK = {"__MACOSX/d/._a.csv": b"?", "d/.DS_Store": b"?", "d/e/Thumbs.db": b"?"}


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def test_the_files_of_an_archive_are_those_of_a_folder(tmp_path: Path):
    path = zipped(tmp_path / "t.zip", FILES | JUNK | {"d/f.csv.gz": gzip.compress(b"packed\n")})
    assert [one.relative_to(path).as_posix() for one in files_in(path)] == [
        "d/a.csv",
        "d/e/b.txt",
        "c.txt",
        "d/f.csv.gz",
    ]
    assert [*read_lines(path / "d/a.csv")] == ["x,y", "ä,1"]
    assert [*read_lines(path / "d/f.csv.gz")] == ["packed"]
    assert dict(read_files(path / "d/e")) == {path / "d/e/b.txt": b"text\n"}
    with pytest.raises(UserError, match=r"b.csv: expected a file in .*, got none; try .*/d/a.csv"):
        [*read_lines(path / "d/b.csv")]


@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress, gzip.compress])
def test_a_packed_file_is_read_and_a_part_of_it_refused(pack, tmp_path: Path):
    content = pack(b"a line\n" * 1000)
    put(tmp_path / "a.txt", content)
    assert len([*read_lines(tmp_path / "a.txt")]) == 1000
    put(tmp_path / "a.txt", content[:-20])
    with pytest.raises(UserError, match="expected a whole packed file"):
        [*read_lines(tmp_path / "a.txt")]


def test_bombs_and_damage_are_one_line(tmp_path: Path):
    bomb = zipped(tmp_path / "b.zip", {f"{i}.txt": b"a" * (1 << 24) for i in range(3)} | {"big": b"a" * (1 << 26)})
    for read in (lambda: [*read_lines(bomb / "big")], lambda: [*read_files(bomb)]):
        with pytest.raises(UserError, match="at most 200 times its packed size"):
            read()
    put(tmp_path / "z.zip", bomb.read_bytes()[:99])
    with pytest.raises(UserError, match="expected a whole packed file"):
        [*read_lines(tmp_path / "z.zip" / "big")]
