"""The house stays as it is drawn and does not grow back."""

import re

import pytest

from tests.architecture import house
from tests.architecture.source import ROOT

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_packages_are_within_their_limits() -> None:
    allowed = house.limits()["tokens"]
    over = {name: (size, allowed.get(name, 0)) for name, size in house.packages().items() if size > allowed.get(name, 0)}
    assert not over, f"tokens and their limits: {over}; shorten, or say why in a commit with house.toml set anew"


def test_shape_is_within_its_limits() -> None:
    allowed = house.limits()["shape"]
    over = {name: (number, allowed[name]) for name, number in house.shape().items() if number > allowed[name]}
    assert not over, f"figures and their limits: {over}"


def test_the_house_is_as_it_is_drawn() -> None:
    drawn = re.search(r"```mermaid\n(.*?)\n```", CONTRIBUTING, re.DOTALL)
    assert drawn
    assert drawn[1] == house.drawing(), "draw it anew: python -m tests.architecture.house --draw"


def test_the_guide_to_changes_is_short_and_names_what_is_there() -> None:
    rows = re.findall(r"^\| (?!---|a new)(.+?) \| (.+?) \|", CONTRIBUTING.partition("## Where a change goes")[2], re.MULTILINE)
    assert 10 <= len(rows) <= 20
    paths = [path for _, where in rows for path in re.findall(r"`([\w./-]+/[\w./-]*)`", where)]
    assert paths
    missing = [path for path in paths if not ((ROOT / path).exists() or (ROOT / "clearhead" / path).exists())]
    assert not missing


@pytest.mark.parametrize(("graph", "below"), [({"a": {"b"}, "b": {"c"}, "c": set()}, {"b", "c"}), ({"a": set()}, set())])
def test_below(graph: dict[str, set[str]], below: set[str]) -> None:
    assert house.below(graph, "a") == below
