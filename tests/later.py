"""Heavy packages for tests: imported by the test that first uses one, not by each process that collects the tests."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest


class Later:
    """A module that is imported when an attribute of it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # Collecting asks every name of a test module for some.
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)


def later(name: str) -> Any:
    """The package of this name, as `pytest.importorskip` gives it: skips the test module if it is not installed."""
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed", allow_module_level=True)
    return Later(name)
