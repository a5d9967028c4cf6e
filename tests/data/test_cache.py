"""An entry is made once, whole or not at all, and anew where it is not what was asked for."""

import errno
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from clearhead.data import corpus as module
from clearhead.data.corpus import CacheEntry, DiskCache, Facts
from clearhead.data.sequences import Shelf
from clearhead.errors import UserError
from tests import processes
from tests.architecture.source import ROOT


class Maker:
    """Counts how often it is asked."""

    def __init__(self, fail: Exception | None = None) -> None:
        self.n_made, self.fail = 0, fail

    def __call__(self, shelf: Shelf) -> Facts:
        self.n_made += 1
        shelf.writer("x", 100).add([[self.n_made], [2, 3]])
        if self.fail is not None:
            raise self.fail
        return {"made": self.n_made}


def get(cache: DiskCache, make: Maker, *, of: int = 0, state: int = 0) -> CacheEntry:
    return cache.get("some", make, of={"of": of}, state=state)


def entries(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if not path.name.endswith(".lock")]


def test_made_once_for_all_that_ask_for_the_same(tmp_path):
    make = Maker()
    for _ in range(2):
        entry = get(DiskCache(tmp_path / "new" / "cache"), make)
        assert (make.n_made, entry.facts, entry.sequences["x"]) == (1, {"made": 1}, [[1], [2, 3]])
    get(DiskCache(tmp_path / "new" / "cache"), make, of=1)
    assert (make.n_made, len(entries(tmp_path / "new" / "cache"))) == (2, 2)


def test_memory_forgets_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make = Maker()
    assert [get(DiskCache(None), make).sequences["x"] for _ in range(2)] == [[[1], [2, 3]], [[2], [2, 3]]]
    assert not entries(tmp_path)


def test_made_anew_in_its_place_where_the_files_changed_and_old_readers_read_on(tmp_path):
    make = Maker()
    old = get(DiskCache(tmp_path), make)
    new = get(DiskCache(tmp_path), make, state=1)
    assert (old.sequences["x"], new.sequences["x"]) == ([[1], [2, 3]], [[2], [2, 3]])
    assert len(entries(tmp_path)) == 1


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("harm", [cut, Path.unlink, lambda path: path.write_bytes(b"foreign, and of some length")])
@pytest.mark.parametrize("name", ["x.ids", "x.lengths", "content.json"])
def test_a_cut_missing_or_foreign_file_is_made_anew(tmp_path, name: str, harm: Any):
    make = Maker()
    get(DiskCache(tmp_path), make)
    (entry,) = entries(tmp_path)
    harm(tmp_path / entry / name)
    assert get(DiskCache(tmp_path), make).sequences["x"] == [[2], [2, 3]]
    assert get(DiskCache(tmp_path), make).facts == {"made": 2}, "and is whole again"


@pytest.mark.parametrize("fail", [UserError("bad data"), KeyboardInterrupt()])
def test_nothing_is_left_of_what_failed(tmp_path, fail: Any):
    with pytest.raises(type(fail)):
        get(DiskCache(tmp_path), Maker(fail))
    assert not entries(tmp_path)
    assert get(DiskCache(tmp_path), Maker()).facts == {"made": 1}


def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(UserError) as error:
        get(DiskCache(tmp_path), Maker())
    told = "expected to write encoded data, got No space left on device; try --data.cache with a folder that has room"
    assert str(error.value).startswith(f"{tmp_path}: {told}")
    assert not entries(tmp_path)


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/cache: expected to write encoded data, got Not a directory; try --data"):
        get(DiskCache(tmp_path / "file" / "cache"), Maker())


KILLED = """
import os, signal, sys
from pathlib import Path
from clearhead.data.corpus import DiskCache

def make(shelf):
    shelf.writer("x", 100).add([[9]])
    os.kill(os.getpid(), signal.SIGKILL)

DiskCache(Path(sys.argv[1])).get("some", make, of={"of": 0}, state=0)
"""


def test_a_kill_leaves_nothing_that_is_trusted_and_no_lock(tmp_path):
    processes.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, check=False)
    (left,) = entries(tmp_path)
    assert left.startswith(".tmp-")
    assert get(DiskCache(tmp_path), Maker()).facts == {"made": 1}
    assert left not in entries(tmp_path), "what was left is cleared away"


SLOW = """
import sys, time
from pathlib import Path
from clearhead.data.corpus import DiskCache

def make(shelf):
    with open(sys.argv[2], "a") as log:
        log.write("made ")
    time.sleep(1.0)
    shelf.writer("x", 100).add([[9]])
    return {}

print(DiskCache(Path(sys.argv[1])).get("some", make, of={"of": 0}, state=0).sequences["x"][0])
"""


def test_processes_that_ask_at_once_wait_for_the_first(tmp_path):
    command = [sys.executable, "-c", SLOW, str(tmp_path / "cache"), str(tmp_path / "log")]
    with ExitStack() as opened:
        options = {"cwd": ROOT, "stdout": subprocess.PIPE, "text": True}
        both = [opened.enter_context(processes.started(command, **options)) for _ in range(2)]
        assert [process.communicate()[0] for process in both] == ["[9]\n", "[9]\n"]
    assert (tmp_path / "log").read_text() == "made "
