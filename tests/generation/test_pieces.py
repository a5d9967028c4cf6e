"""Text piece by piece; `Model.stream` is tested with models."""

from clearhead.generation.pieces import pieces


def test_a_stop_string_that_begins_before_an_unfinished_character_is_held_back():
    texts = ["for", "for 3", "for 3 \N{REPLACEMENT CHARACTER}", "for 3 €", "for 3 €, no"]
    assert "".join(pieces(texts, ["3 €, n"])) == "for "
    assert list(pieces(texts[:3], ["3 €, n"])) == ["for", " ", "3 \N{REPLACEMENT CHARACTER}"]
