"""The page's examples are those of Python, found a while at a time; and the texts that a page looks through."""

from typing import Any

import pytest

from clearhead.api import load
from clearhead.errors import UserError
from clearhead.explorer.answering import data_sets
from clearhead.explorer.session import Session
from clearhead.training.train import train
from tests.explorer.asking import ask
from tests.explorer.traced import CONFIGS, model_of
from tests.training.tiny import begin, write_recipe

TEXTS = ["one two three", "four", "", "two two one four three one", "three one", "one"]
AT = "decoder.blocks.1.ffn.post[f=3]"


def session(**given: Any) -> Session:
    return Session(model_of(CONFIGS["decoder_rotary_grouped"]), name="model", **given)


def asked(of: Session, **question: Any) -> list[dict[str, Any]]:
    """Every reply until the host has looked at everything."""
    replies: list[dict[str, Any]] = []
    while not replies or not replies[-1]["done"]:
        replies.append(ask(of, "examples", **question)[0])
    return replies


@pytest.mark.parametrize(
    ("at", "measure"),
    [(AT, "value"), ("decoder.blocks.0.attn.z[h=1]", "norm"), ("decoder.blocks.1.attn.weights[h=2]", "weight")],
)
def test_the_strongest_texts_arrive_while_they_are_found(at: str, measure: str, monkeypatch):
    monkeypatch.setattr(data_sets, "AT_A_TIME", 0.0)
    of = session(data=TEXTS)
    first = ask(of, "examples", at=at, top=3)[0]
    assert (first["read"], first["done"], first["rows"]) == (0, False, [])
    monkeypatch.undo()
    reply = asked(of, at=at, top=3)[-1]
    known = [text for text in TEXTS if len(text.split()) >= (data_sets.FEWEST if measure == "weight" else 1)]
    assert (reply["measure"], reply["read"], reply["of"], reply["from"]) == (measure, len(known), len(known), "given")
    assert all("".join(row["tokens"]).strip() == row["text"] for row in reply["rows"])


def test_a_state_is_a_direction():
    of, at = session(data=TEXTS), "decoder.blocks.0.resid_post"
    run = {"text": TEXTS[0], "target": None, "edits": []}
    reply = asked(of, at=at, top=2, towards={"run": run, "at": f"{at}[t=2]"})[-1]
    assert reply["measure"] == "towards"
    seen, _ = of.model.trace(TEXTS[0])
    state = seen[at][0, 2]
    own = next(row for row in reply["rows"] if row["text"] == TEXTS[0])
    assert own["values"][2] == pytest.approx(float(state.norm()), rel=1e-4)


def test_without_data_the_page_is_not_offered_any():
    of = session()
    assert "examples" not in ask(of, "about")[0]["answers"]
    assert "examples" in ask(session(data=TEXTS), "about")[0]["answers"]
    with pytest.raises(UserError, match=r"^examples: expected data, got none with this model; try clearhead explore"):
        asked(of, at=AT, top=3)


def test_a_run_knows_its_data(tmp_path):
    for _ in train(begin(write_recipe(tmp_path), tmp_path / "run")):
        pass

    def opened() -> Session:
        return Session(load(tmp_path / "run"), name="run", folder=tmp_path / "run")

    of = opened()
    assert "examples" in ask(of, "about")[0]["answers"]
    reply = asked(of, at="decoder.blocks.0.cross.weights[h=0]", top=2)[-1]
    assert reply["from"] == "train"
    assert reply["of"] > 2
    assert reply["rows"][0]["target"]
    assert "eins" not in reply["rows"][0]["text"]
    for path in tmp_path.glob("a.*"):
        path.unlink()
    assert "examples" not in ask(opened(), "about")[0]["answers"]
