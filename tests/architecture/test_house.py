"""The house stays as it is drawn and does not grow back."""

import re

from tests.architecture import house
from tests.architecture.source import ROOT

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_packages_are_within_their_limits():
    allowed = house.limits()["tokens"]
    sizes = house.packages()
    over = {name: (size, allowed.get(name, 0)) for name, size in sizes.items() if size > allowed.get(name, 0)}
    assert not over, f"tokens and their limits: {over}; shorten, or say why in a commit with house.toml set anew"


def test_shape_is_within_its_limits():
    allowed = house.limits()["shape"]
    over = {name: (number, allowed[name]) for name, number in house.shape().items() if number > allowed[name]}
    assert not over, f"figures and their limits: {over}"


def test_the_house_is_as_it_is_drawn():
    drawn = re.search(r"```mermaid\n(.*?)\n```", CONTRIBUTING, re.DOTALL)
    assert drawn
    assert drawn[1] == house.drawing(), "draw it anew: python -m tests.architecture.house --draw"


def test_the_guide_to_changes_is_short_and_names_what_is_there():
    table = CONTRIBUTING.partition("## Where a change goes")[2]
    rows = re.findall(r"^\| (?!---|a new)(.+?) \| (.+?) \|", table, re.MULTILINE)
    assert 10 <= len(rows) <= 20
    paths = [path for _, where in rows for path in re.findall(r"`([\w./-]+/[\w./-]*)`", where)]
    assert paths
    missing = [path for path in paths if not ((ROOT / path).exists() or (ROOT / "clearhead" / path).exists())]
    assert not missing


def test_below():
    graph = {"a": {"b"}, "b": {"c"}, "c": set[str](), "d": {"a"}}
    assert (house.below(graph, "a"), house.below(graph, "c")) == ({"b", "c"}, set())


def test_a_room_is_found_by_its_module():
    assert [house.room(name) for name in ("clearhead.model.fast.int8", "clearhead", "clearhead_lab.walks")] == [
        *("model", "", "lab"),
    ]
