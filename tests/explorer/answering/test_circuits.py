"""Circuits as a page asks for them: every family, against the library's own."""

import base64
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from clearhead.errors import UserError
from tests.explorer.asking import ask, session_of, start
from tests.explorer.traced import CONFIGS

TEXTS = [name for name in CONFIGS if name != "vision"]


@pytest.mark.parametrize("name", TEXTS)
def test_circuits_of_two_texts(name: str):
    session = session_of(name)
    run = start(session)
    words = run["text"].split()
    corrupt = {**run, "text": " ".join([*words[1:], words[0]])}
    both = {"run": run, "corrupt": corrupt}
    graph, _ = ask(session, "circuits", **both)
    found, _ = ask(session, "edges", **both, steps=2, most=5000)
    assert found["total"] == len(found["edges"])
    assert set(graph["nodes"]) == {edge["writer"] for edge in found["edges"]}
    whole, _ = ask(session, "faithfulness", **both, steps=2, share=1.0)
    assert whole["metric"] == pytest.approx(graph["clean"], rel=1e-4, abs=1e-4)
    none, _ = ask(session, "faithfulness", **both, steps=2, share=0.0)
    assert none["metric"] == pytest.approx(graph["corrupt"], rel=1e-4, abs=1e-4)
    best = found["edges"][0]
    one, _ = ask(session, "edge", **both, steps=2, writer=best["writer"], reader=best["reader"])
    assert one["score"] == pytest.approx(best["score"], rel=1e-4)
    assert sum(one["positions"]) == pytest.approx(best["score"], rel=1e-4, abs=1e-6)
    for term in one["terms"]:
        assert term["product"] == pytest.approx(term["change"] * term["gradient"], rel=1e-4)


def test_texts_of_other_lengths_and_wrong_edges():
    session = session_of("decoder_pre_learned")
    run = start(session)
    with pytest.raises(UserError, match=r"corrupt: expected \d+ tokens for the decoder"):
        ask(session, "circuits", run=run, corrupt={**run, "text": run["text"].split()[0]})
    with pytest.raises(UserError, match="no such reader"):
        ask(session, "edge", run=run, corrupt=run, writer="decoder.embed.tokens", reader="decoder.blocks.9.ffn.pre")


def test_circuits_of_two_pictures():
    session = session_of("vision")
    content = BytesIO()
    Image.fromarray(np.arange(192, dtype=np.uint8)[::-1].reshape(8, 8, 3)).save(content, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"
    run = start(session)
    both = {"run": run, "corrupt": {**run, "image": url}}
    graph, _ = ask(session, "circuits", **both)
    assert graph["clean"] != graph["corrupt"]
    none, _ = ask(session, "faithfulness", **both, share=0.0)
    assert none["metric"] == pytest.approx(graph["corrupt"], rel=1e-4, abs=1e-4)
