"""Entry points of other packages."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from clearhead import extensions as module
from clearhead.errors import UserError
from clearhead.extensions import extensions, load_extension, parts


@pytest.fixture
def points(monkeypatch) -> Iterator[list[EntryPoint]]:
    found: list[EntryPoint] = []
    monkeypatch.setattr(module, "entry_points", lambda *, group: [one for one in found if one.group == group])
    extensions.cache_clear()
    yield found
    extensions.cache_clear()


def test_extension_is_found_by_its_name(points: list[EntryPoint]):
    points += [EntryPoint("root", "math:sqrt", "clearhead.tasks"), EntryPoint("other", "math:sin", "clearhead.places")]
    assert extensions("tasks") == {"root": "math:sqrt"}
    assert load_extension("tasks", "root", "math:sqrt")(4) == 2


def test_two_extensions_of_one_name_are_refused(points: list[EntryPoint]):
    points += [EntryPoint("a", "math:sin", "clearhead.tasks"), EntryPoint("a", "math:cos", "clearhead.tasks")]
    with pytest.raises(UserError, match=r"one extension named a, got math:sin and math:cos; uninstall one"):
        extensions("tasks")


def test_extensions_come_after_our_own_and_may_not_take_their_names(points: list[EntryPoint]):
    points += [EntryPoint("a", "math:sin", "clearhead.tasks")]
    assert [*parts("tasks", {"lm": "math:cos"}).items()] == [("lm", "math:cos"), ("a", "math:sin")]
    with pytest.raises(UserError, match=r"^clearhead.tasks: expected another name than a, .* got math:sin; uninstall"):
        parts("tasks", {"a": "math:cos"})


@pytest.mark.parametrize("where", ["math:nothing", "no_such_module:x"])
def test_extension_that_cannot_be_imported_is_one_line(where: str):
    with pytest.raises(UserError, match=rf"^clearhead.tasks: expected a at {where}, got .*; reinstall its package$"):
        load_extension("tasks", "a", where)
