"""Circuits as a page asks for them: every family, against the library's own."""

import base64
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from clearhead.analysis.circuits import patched_edges, refined_edges
from clearhead.analysis.features import Features
from clearhead.api.circuits import circuits_of
from clearhead.api.features import attach
from clearhead.errors import UserError
from clearhead.explorer.recording.tokens import read
from clearhead.explorer.session import Session
from tests.analysis.kinds import features
from tests.explorer.asking import ask, session_of, start
from tests.explorer.traced import CONFIGS, model_of

TEXTS = [name for name in CONFIGS if name != "vision"]


@pytest.mark.parametrize("name", TEXTS)
def test_circuits_of_two_texts(name: str) -> None:
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


def test_the_numbers_are_those_of_the_library() -> None:
    session = session_of("encoder_decoder_relative")
    run = start(session)
    corrupt = {**run, "text": " ".join(reversed(run["text"].split()))}
    model, clean = session.model, read(session.model, run["text"], run["target"]).inputs
    other = [read(model, corrupt["text"], run["target"]).inputs[0], clean[1]]
    circuits, explained = circuits_of(model, clean, other, answer=3, minus=5, position=1)
    asked = {"run": run, "corrupt": corrupt, "answer": 3, "minus": 5, "position": 1}
    graph, _ = ask(session, "circuits", **asked)
    assert (graph["answer"], graph["minus"], graph["position"]) == (3, 5, 1) == tuple(vars(explained).values())
    scores = circuits.nodes().positions
    assert set(graph["nodes"]) == set(scores)
    for at, shares in graph["nodes"].items():
        torch.testing.assert_close(torch.tensor(shares), scores[at], atol=1e-5, rtol=1e-4)
    pair = "encoder.blocks.1.ffn.out", "decoder.blocks.0.cross.v[h=1]"
    one, _ = ask(session, "edge", **asked, writer=pair[0], reader=pair[1])
    assert one["exact"] == pytest.approx(patched_edges(circuits, [pair])[pair], rel=1e-3, abs=1e-5)
    assert refined_edges(circuits).exists.sum() == ask(session, "edges", **asked)[0]["total"]


def test_features_are_parts_of_the_graph() -> None:
    model, run = model_of(CONFIGS["encoder_decoder_relative"]), start(session_of("encoder_decoder_relative"))
    session = Session(model, name="featured", text=run["text"], target=run["target"])
    sites = ("encoder.blocks.1.resid_post", "decoder.blocks.0.attn_norm.out", "decoder.blocks.0.ffn.out")
    attach(model.network, *(features(model.network, at, "sae") for at in sites))
    corrupt = {**run, "text": " ".join(reversed(run["text"].split()))}
    both = {"run": run, "corrupt": corrupt}
    graph, _ = ask(session, "circuits", **both)
    found, _ = ask(session, "edges", **both, most=5000)
    assert set(graph["nodes"]) == {edge["writer"] for edge in found["edges"]}
    split = {at for at in sites if f"{at}.features.error" in graph["nodes"]}
    assert split == {sites[0], sites[2]}, "those that a graph has a place for"
    best = next(edge for edge in found["edges"] if edge["reader"].startswith(f"{sites[0]}.features["))
    one, _ = ask(session, "edge", **both, writer=best["writer"], reader=best["reader"])
    assert one["score"] == pytest.approx(best["score"], rel=1e-4)
    clean = read(model, run["text"], run["target"]).inputs
    other = [read(model, corrupt["text"], run["target"]).inputs[0], clean[1]]
    attached = [own for own in model.network.attached if isinstance(own, Features) and own.writes in split]
    circuits, _ = circuits_of(model, clean, other, features=attached)
    pair = best["writer"], best["reader"]
    assert one["exact"] == pytest.approx(patched_edges(circuits, [pair])[pair], rel=1e-3, abs=1e-5)
    plain, _ = ask(session, "circuits", **both, features=False)
    assert not any(".features" in at for at in plain["nodes"])


def test_texts_of_other_lengths_and_wrong_edges() -> None:
    session = session_of("decoder_pre_learned")
    run = start(session)
    with pytest.raises(UserError, match=r"corrupt: expected \d+ tokens for the decoder"):
        ask(session, "circuits", run=run, corrupt={**run, "text": run["text"].split()[0]})
    with pytest.raises(UserError, match="no such reader"):
        ask(session, "edge", run=run, corrupt=run, writer="decoder.embed.tokens", reader="decoder.blocks.9.ffn.pre")


def test_circuits_of_two_pictures() -> None:
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
