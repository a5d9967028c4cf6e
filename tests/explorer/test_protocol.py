"""The page's types are those of the questions and replies in Python."""

from tools.protocol import FILE, protocol


def test_the_types_of_the_page_are_current():
    assert FILE.read_text(encoding="utf-8") == protocol(), "out of date: run python -m tools.protocol"
