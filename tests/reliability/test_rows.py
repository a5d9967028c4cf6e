"""The table of promises names tests and programs that exist."""

import ast
from pathlib import Path

import pytest

from tests.reliability import IN_MATRIX, Row, rows

TESTS = Path(__file__).resolve().parents[1]


def test_there_are_forty_and_those_beyond():
    beyond = {"Surroundings", "Use"}
    assert [row.number for row in rows() if row.area not in beyond] == list(range(1, IN_MATRIX + 1))
    assert all(row.tests or row.program for row in rows())


@pytest.mark.parametrize("row", rows(), ids=lambda row: str(row.number))
def test_what_shows_a_row_exists(row: Row):
    for name in row.tests:
        file, _, test = name.partition("::")
        assert (TESTS / file).exists()
        if test:
            functions = ast.walk(ast.parse((TESTS / file).read_text(encoding="utf-8")))
            assert test in [node.name for node in functions if isinstance(node, ast.FunctionDef)]
    if row.program:
        module, _, function = row.program.partition(".")
        tree = ast.parse((Path(__file__).parent / f"{module}.py").read_text(encoding="utf-8"))
        assert function in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
