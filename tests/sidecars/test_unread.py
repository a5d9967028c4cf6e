"""Which files of a folder nothing reads: the list is checked against what `load` opens."""

import random
import sys
from pathlib import Path

import pytest

from clearhead.api import load
from clearhead.api.folders import unread
from clearhead.errors import UserError
from tests.later import later
from tests.sidecars.models import sentences
from tests.sidecars.tiny import put

later("transformers")

_opened: list[str] = []
sys.addaudithook(lambda event, arguments: _opened.append(str(arguments[0])) if event == "open" else None)


@pytest.mark.parametrize("seed", [0, 3, *(pytest.param(i, marks=pytest.mark.slow) for i in (1, 2, 4, 5, 6, 7))])
def test_what_is_opened_is_not_listed(seed: int, tmp_path):
    sentences(random.Random(seed), tmp_path)
    for name in ("notes.txt", "onnx/model.onnx", "9_Dense/config.json", "training_args.bin", ".git/config"):
        put(tmp_path / name, {})
    _opened.clear()
    try:
        load(tmp_path)
    except UserError:
        return
    read = {Path(path).relative_to(tmp_path).as_posix() for path in _opened if path.startswith(f"{tmp_path}/")}
    left = unread(tmp_path)
    assert {"notes.txt", "onnx/model.onnx", "9_Dense/config.json", "training_args.bin", ".git"} <= {*left}
    assert not read & {*left}
    there = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.json")}
    assert there - {*left} - {".git/config"} <= read
