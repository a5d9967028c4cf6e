"""The file of `clearhead translate --page` and the demo."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import torch

from clearhead.api import Model
from clearhead.errors import UserError
from clearhead.explorer.answering.questions import RunRequest
from clearhead.explorer.export import page
from clearhead.explorer.export.page import export_translations, information, telling_place
from clearhead.explorer.session import Session
from tests.explorer.export_fixtures import page_in, parts_of, too_large
from tests.small_models import model_of

TEXTS = ["one two three", "four </script> Ω", "five", "one two three"]


@pytest.fixture(scope="module")
def model() -> Model:
    return model_of("demo", n_layers=2)


@pytest.fixture(autouse=True)
def _built(tmp_path: Path) -> Iterator[None]:
    with page_in(tmp_path / "static"):
        yield


def written(model: Model, path: Path) -> tuple[dict[str, Any], dict[str, list[str]], list[RunRequest]]:
    """What the file says of itself, where it opens, and the translations it was made of."""
    session = Session(model, name="some/model")
    found = zip(TEXTS, model.hypotheses(TEXTS), strict=True)
    runs = [RunRequest(text=text, written=list(best[0].tokens)) for text, best in found]
    assert export_translations(session, runs, path) == 3, "each text once"
    html = path.read_text(encoding="utf-8")
    state = html.partition('data-state="#')[2].partition('"')[0].replace("&amp;", "&")
    return parts_of(html)["data"][0], parse_qs(state), runs


@pytest.mark.parametrize("large", [False, True])
def test_each_translation_is_in_the_file_with_the_tokens_as_written(model: Model, tmp_path: Path, large: bool):
    if large:
        with too_large():
            document, state, runs = written(model, tmp_path / "page.html")
        held = document["recorded"]
        assert [("effects" in one, "without" in one["parts"]) for one in held] == [(True, True)] + 2 * [(False, False)]
    else:
        document, state, runs = written(model, tmp_path / "page.html")
        held = document["live"]["inputs"]
    assert [one["run"]["written"] for one in held] == [run.written for run in runs[:3]]
    assert [one["run"]["target"] for one in held] == model.translate(TEXTS[:3])
    start = {"text": TEXTS[0], "target": None, "edits": []}
    assert document["about"]["start"] == start
    assert document["about"]["examples"] == [{**start, "text": text} for text in TEXTS[:3]]
    assert (state["s"], state["stack"], state["part"]) == ([TEXTS[0]], ["decoder"], ["cross"])


def test_it_opens_at_the_head_that_tells_most(model: Model):
    found = Session(model, name="x").passes.get(RunRequest(text="one two three", target="eins zwei"))
    weights = found.recording.tensors["decoder.blocks.1.cross.weights"]
    weights.fill_(0.0)[..., -1] = 1.0  # All on the end mark, which tells nothing.
    weights[1] = torch.tensor([[0.9, 0.1, 0.0, 0.0], [0.0, 0.99, 0.01, 0.0], [0.0, 0.0, 0.0, 1.0]])
    found.recording.tensors["decoder.blocks.0.cross.weights"].fill_(0.25)
    assert telling_place(found) == {"stack": "decoder", "part": "cross", "layer": 1, "head": 1, "query": 1, "key": 1}


def test_information():
    alike, apart = torch.tensor([[0.3, 0.7]] * 4), torch.eye(4)
    torch.testing.assert_close(
        information(torch.stack([apart, torch.full((4, 4), 0.25)])), torch.tensor([math.log(4), 0])
    )
    assert float(information(alike)) == pytest.approx(0.0, abs=1e-6)


def test_there_is_a_limit_to_the_texts(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(page, "MOST_TRANSLATIONS", 2)
    runs = [RunRequest(text=text, target="eins") for text in ("one", "two", "three")]
    assert export_translations(Session(model, name="x"), runs, tmp_path / "page.html") == 2


def test_what_has_no_page_is_told(model: Model, tmp_path: Path):
    with pytest.raises(UserError, match="at least one text"):
        export_translations(Session(model, name="x"), [], tmp_path / "page.html")
    with pytest.raises(UserError, match="expected an encoder-decoder"):
        export_translations(Session(model_of("nano"), name="x"), [RunRequest(text="one")], tmp_path / "page.html")
