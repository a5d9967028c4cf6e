import base64
import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearhead.api import Model
from clearhead.errors import UserError
from clearhead.explorer.pages import save_page, translated, translation_page
from tests.small_models import PAIRS, model_of

TEXTS = ["one two three", "four </script> Ω", "five"]


@pytest.fixture(scope="module")
def model() -> Model:
    return model_of("demo", n_layers=2)


def data_of(page: str) -> dict[str, Any]:
    """What the page's script reads."""
    found = re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_each_step_that_wrote_a_token_is_shown(model: Model):
    tokens = [best[0].tokens for best in model.hypotheses(TEXTS)]
    data = data_of(translation_page(model, TEXTS, tokens))
    assert data["layer"] == 1
    assert data["addresses"] == [f"decoder.blocks.{i}.cross.weights" for i in range(2)]
    assert [phrase["source"] for phrase in data["phrases"]] == TEXTS
    assert [phrase["output"] for phrase in data["phrases"]] == model.translate(TEXTS)
    assert [phrase["unseen"] for phrase in data["phrases"]] == [model.tokenizer.unknown(text) for text in TEXTS]
    assert "Ω" in data["phrases"][1]["unseen"]
    for phrase, text, written in zip(data["phrases"], TEXTS, tokens, strict=True):
        eos = model.tokenizer.need("eos")
        assert phrase["s"] == model.tokenizer.tokens([*model.tokenizer.encode(text), eos])
        assert phrase["t"] == model.tokenizer.tokens([*written, eos]), "the tokens as written, unknown ones too"
        weights = np.frombuffer(base64.b64decode(phrase["w"]), "<u2").reshape(2, 2, len(phrase["t"]), len(phrase["s"]))
        np.testing.assert_allclose(weights.sum(-1), 10_000, atol=len(phrase["s"]))
        assert all(0 <= p <= 1 for p in phrase["p"])


def test_references_and_alignments_go_with_their_phrases(model: Model):
    items = translated(
        model,
        PAIRS.source[:2],
        PAIRS.target[:2],
        references=[None, "right"],
        kinds=["a", None],
        alignments=[((0, 0),), None],
        unseen=[(), ("x",)],
    )
    assert [item.reference for item in items] == [None, "right"]
    assert [item.kind for item in items] == ["a", None]
    assert [item.alignment for item in items] == [((0, 0),), None]
    assert [item.unseen for item in items] == [(), ("x",)]
    assert [item.output_text for item in items] == PAIRS.target[:2]
    with pytest.raises(ValueError, match="argument"):
        translated(model, PAIRS.source[:2], PAIRS.target[:2], kinds=["only one"])


def test_what_has_no_page_is_told(model: Model):
    with pytest.raises(UserError, match="at least one text"):
        translation_page(model, [], [])
    with pytest.raises(UserError, match="expected an encoder-decoder"):
        translation_page(model_of("nano"), ["one"], [[4]])


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = tmp_path / "page.html"
    save_page("old", page)
    with pytest.raises(UserError, match="expected to write a page, got No such file or directory"):
        save_page("new", tmp_path / "nowhere" / "page.html")

    def full(self: Path, text: str, encoding: str) -> int:
        self.write_bytes(text[:1].encode())
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UserError, match=re.escape(f"{page}: expected to write a page, got No space left")):
        save_page("new", page)
    assert page.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
