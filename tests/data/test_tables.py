"""What a cell says."""

import pytest

from clearhead.data.tables import number_of, parts_of


@pytest.mark.parametrize(
    ("cell", "parts"),
    [
        (["a", 3.0], ["a", "3"]),
        ("['a, b', \"it's\"]", ["a, b", "it's"]),
        ("[1, 2]", ["1", "2"]),
        ("[]", []),
        ("a, b", ["a", "b"]),
    ],
)
def test_labels_of_a_cell(cell: object, parts: list[str]):
    assert parts_of(cell) == parts


@pytest.mark.parametrize(("text", "number"), [("1e3", 1000.0), ("12_3", None), ("nan", None), ("", None)])
def test_numbers_of_a_cell(text: str, number: float | None):
    assert number_of(text) == number
