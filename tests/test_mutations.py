"""The list of seeded defects fits the product: `python -m tests.mutations` applies them and runs the tests."""

import ast

import pytest

from tests.conftest import ROOT
from tests.mutations import Defect, defects

DEFECTS = defects()


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda one: one.name)
def test_each_changes_a_line_that_is_there(defect: Defect):
    source = defect.path(ROOT).read_text(encoding="utf-8")
    changed = defect.applied(source)
    if not defect.is_of_page:
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))
    assert defect.tests
    assert all((ROOT / name).exists() for name in defect.test_paths)


def test_there_are_a_hundred_everywhere():
    assert len({one.name for one in DEFECTS}) == len(DEFECTS) == 100
    assert len({one.file.partition("/")[0] for one in DEFECTS}) >= 18
    assert len({one.file for one in DEFECTS}) >= 80
