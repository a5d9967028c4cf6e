"""The guides have all files of examples/, so that a reader of the pages alone has them too."""

import pytest

from tests.examples.packages import GUIDES, ROOT, files


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_has_every_file(guide: str):
    example = {
        path.name: path.read_text(encoding="utf-8").strip()
        for path in (ROOT / "examples" / guide).iterdir()
        if path.is_file()
    }
    assert example == {name: text.strip() for name, text in files(guide).items() if name in example}
