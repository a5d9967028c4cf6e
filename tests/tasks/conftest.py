"""Every test of tasks works in a folder of its own, and waits for no disk."""

import pytest


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.fsync", lambda _: None)
