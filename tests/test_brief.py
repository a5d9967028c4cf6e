"""What holds tensors shows shapes, in a bounded text; and a package names what it exports lazily."""

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest
import torch

import clearhead
from clearhead.brief import amount, brief, shorten
from clearhead.generation import Hypothesis
from clearhead.model import Tokens
from clearhead.tasks.task import Batch
from clearhead.trace import trace
from tests.model import small
from tests.model.small import ids

HOLDS_FUNCTIONS = {"Trace", "Pass", "EditedGeneration", "Kind", "Rule", "Source"}
MOST = 2000
"""Characters."""


def holders() -> Iterator[type]:
    """Every public dataclass with a field of tensors or arrays."""
    for found in pkgutil.walk_packages(clearhead.__path__, "clearhead."):
        if not found.name.endswith("__main__") and not found.name.startswith("clearhead.cli"):
            for name, kind in vars(importlib.import_module(found.name)).items():
                if inspect.isclass(kind) and dataclasses.is_dataclass(kind) and not name.startswith("_"):
                    types = " ".join(str(f.type) for f in dataclasses.fields(kind) if f.repr)
                    if kind.__module__ == found.name and ("torch.Tensor" in types or "ndarray" in types):
                        yield kind


def test_whatever_holds_tensors_shows_their_shapes():
    kinds = list(holders())
    assert len(kinds) > 15
    # A bare callable in a field is no tensor: runs of the explorer have edits, which are functions of them.
    wrong = {k.__qualname__ for k in kinds if k.__repr__ is not brief} - HOLDS_FUNCTIONS
    assert not wrong, "give them __repr__ = brief"


def test_a_trace_says_what_it_has_and_no_number():
    network = small.decoder(n_layers=4)
    with trace(network) as seen:
        network(ids(2, 9))
    text = repr(seen)
    assert text.startswith(f"Trace of {len(seen)} addresses, ")
    assert "decoder.embed.tokens (b t d): float32 of 2 x 9 x 16" in text
    assert "trace[address]" in text
    assert len(text) < 500


def test_numbers_are_bounded_however_many():
    network = small.decoder(n_layers=12)
    cache = network.new_cache()
    with torch.no_grad():
        network.decode(Tokens(ids(3, 20)), None, cache)
    tokens = Tokens.pad([[1] * 900, [2]])
    for value in (cache, tokens, Batch((tokens, tokens), torch.zeros(5000)), Hypothesis((7,) * 5000, 0.0, 0.0, "eos")):
        assert len(repr(value)) < MOST
    assert repr(Tokens(ids(2, 5))).startswith("Tokens(ids=int64 of 2 x 5, valid=None")


@pytest.mark.parametrize("name", clearhead.__all__)
def test_lazy_names_are_listed(name: str):
    assert name in dir(clearhead)
    assert getattr(clearhead, name).__name__ == name


def test_many_names_are_one_line_and_one_is_no_plural():
    assert shorten([*"abcdefgh"]) == "a, b, c, d, e, f and 2 more"
    assert shorten(["a", "b"]) == "a, b"
    assert len(shorten([f"{i} a label of many words that says all" for i in range(2000)], 900)) < 300
    assert [amount(n, "rows are bad") for n in (0, 1, 2000)] == ["0 rows are bad", "1 row is bad", "2,000 rows are bad"]
