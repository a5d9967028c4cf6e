"""The file of `clearhead translate --page` and the demo."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from clearhead.api import Model
from clearhead.errors import UserError
from clearhead.explorer.answering.questions import RunRequest
from clearhead.explorer.export import page
from clearhead.explorer.export.page import export_translations
from clearhead.explorer.session import Session
from tests.explorer.export_fixtures import page_in, parts_of, too_large
from tests.small_models import model_of

TEXTS = ["one two three", "four </script> Ω", "five", "one two three"]


@pytest.fixture(scope="module")
def model() -> Model:
    return model_of("demo", n_layers=2)


@pytest.fixture(autouse=True)
def _built(tmp_path) -> Iterator[None]:
    with page_in(tmp_path / "static"):
        yield


def written(model: Model, path: Path) -> tuple[dict[str, Any], list[RunRequest]]:
    """What the file says of itself, and the translations it was made of."""
    session = Session(model, name="some/model")
    found = zip(TEXTS, model.hypotheses(TEXTS), strict=True)
    runs = [RunRequest(text=text, written=list(best[0].tokens)) for text, best in found]
    assert export_translations(session, runs, path) == 3, "each text once"
    return parts_of(path.read_text(encoding="utf-8"))["data"][0], runs


@pytest.mark.parametrize("large", [False, True])
def test_each_translation_is_in_the_file_with_the_tokens_as_written(model: Model, tmp_path, large: bool):
    with too_large() if large else nullcontext():
        document, runs = written(model, tmp_path / "page.html")
    held = [one for one in (document["recorded"] if large else document["live"]["inputs"]) if not one["run"]["edits"]]
    if large:
        assert [("effects" in one, "without" in one["parts"]) for one in held] == [(True, True)] + 2 * [(False, False)]
    assert [one["run"]["written"] for one in held] == [run.written for run in runs[:3]]
    assert [one["run"]["target"] for one in held] == model.translate(TEXTS[:3])
    start = {"text": TEXTS[0], "target": None, "edits": []}
    assert document["about"]["start"] == start
    assert document["about"]["examples"] == [{**start, "text": text} for text in TEXTS[:3]]


def test_there_is_a_limit_to_the_texts(model: Model, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "MOST_TRANSLATIONS", 2)
    runs = [RunRequest(text=text, target="eins") for text in ("one", "two", "three")]
    assert export_translations(Session(model, name="x"), runs, tmp_path / "page.html") == 2


def test_what_has_no_page_is_told(model: Model, tmp_path):
    with pytest.raises(UserError, match="at least one text"):
        export_translations(Session(model, name="x"), [], tmp_path / "page.html")
    with pytest.raises(UserError, match="expected an encoder-decoder"):
        export_translations(Session(model_of("nano"), name="x"), [RunRequest(text="one")], tmp_path / "page.html")
