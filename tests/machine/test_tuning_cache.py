"""Results are kept by machine and question; a file that cannot be used stops nothing."""

from pathlib import Path
from typing import Literal

import pytest
import torch

from clearhead.config import Config
from clearhead.errors import UserError
from clearhead.machine import tuning_cache
from clearhead.machine.tuning_cache import FILE, file, keep, recall
from clearhead.recipe.places import cache_folder


class Quickest(Config):
    kind: Literal["packed", "plain"]
    milliseconds: float = 0.0


PACKED = Quickest(kind="packed", milliseconds=1.5)


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv(FILE, str(tmp_path / "new" / "probes.json"))
    return tmp_path / "new" / "probes.json"


@pytest.mark.usefixtures("place")
def test_a_result_is_that_of_its_question_and_form():
    keep(PACKED, {"shape": [8, 8]})
    assert recall(Quickest, {"shape": [8, 8]}) == PACKED
    assert recall(Quickest, {"shape": [8, 9]}) is None

    class Other(Config):
        kind: str

    assert recall(Other, {"shape": [8, 8]}) is None


@pytest.mark.usefixtures("place")
def test_other_machines_are_asked_anew(monkeypatch):
    keep(PACKED, {})
    with monkeypatch.context() as changed:
        changed.setattr(torch, "get_num_threads", lambda: 7)
        assert recall(Quickest, {}) is None
    with monkeypatch.context() as changed:
        changed.setattr(tuning_cache, "_machine", lambda: {"cpu": "another"})
        assert recall(Quickest, {}) is None
    assert recall(Quickest, {}) == PACKED


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 1, "results": {"a": 1}}', b"\xff"])
def test_a_damaged_file_is_written_anew(place: Path, content: bytes):
    place.parent.mkdir()
    place.write_bytes(content)
    assert recall(Quickest, {}) is None
    keep(PACKED, {})
    assert recall(Quickest, {}) == PACKED
    assert [path.name for path in place.parent.iterdir()] == [place.name]


def test_results_of_another_form_are_asked_anew(place: Path):
    keep(PACKED, {})
    place.write_text(place.read_text().replace("packed", "folded"))
    assert recall(Quickest, {}) is None


def test_what_cannot_be_kept_stops_nothing(place: Path, monkeypatch):
    place.parent.write_text("a file where the folder would be")
    keep(PACKED, {})
    assert recall(Quickest, {}) is None
    monkeypatch.setenv(FILE, "")
    assert file() is None
    keep(PACKED, {})


@pytest.mark.usefixtures("place")
def test_the_oldest_results_give_way(monkeypatch):
    monkeypatch.setattr(tuning_cache, "MOST", 2)
    for i in range(3):
        keep(PACKED, {"i": i})
    assert [recall(Quickest, {"i": i}) for i in range(3)] == [None, PACKED, PACKED]


def test_the_file_is_in_the_users_cache(monkeypatch):
    monkeypatch.delenv(FILE)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert file() == Path("/x/clearhead/probes.json")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert cache_folder() == Path.home() / ".cache" / "clearhead"

    def homeless() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", homeless)
    assert file() is None
    with pytest.raises(UserError, match=r"HOME: expected the home folder of this user, .*; set XDG_CACHE_HOME"):
        cache_folder()
