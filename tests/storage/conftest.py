import os

import pytest


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch) -> None:
    """Files are real, and tests of power cuts are elsewhere."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
