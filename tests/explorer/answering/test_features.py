"""The page's features: the most active ones of a position, and a pass in which one is edited."""

from typing import Any

import pytest
import torch

from clearhead.analysis.features import Features, Site
from clearhead.api.features import attach
from clearhead.errors import UserError
from clearhead.explorer.session import Session
from tests.explorer.asking import ask as asked
from tests.small_models import model_of

AT = "decoder.blocks.0.resid_post"


@pytest.fixture(scope="module")
def session() -> Session:
    model = model_of("nano", n_layers=2)
    torch.manual_seed(0)
    attach(
        model.network,
        Features(Site(AT, AT), torch.randn(16, 40), torch.zeros(40), torch.randn(40, 16), torch.zeros(16), k=6),
    )
    return Session(model, name="nano", text="one two three")


def ask(session: Session, ask: str, **fields: Any) -> dict[str, Any]:
    return asked(session, ask, **fields)[0]


def test_an_edited_feature(session: Session):
    at = f"{AT}.features[f=3,t=1]"
    run = {"text": "one two three", "edits": [{"at": at, "do": "set", "value": 25.0}]}
    found = ask(session, "features", run=run, at=f"{AT}.features", position=1)
    assert (found["active"][0]["feature"], found["active"][0]["value"]) == (3, 25.0)
    _, expected = session.model.trace("one two three", edit={at: 25.0})
    reply = asked(session, "values", run=run, at=["head.logits"])[1]["head.logits"]
    assert torch.allclose(reply, expected, atol=1e-4)
    assert ask(session, "check", run=run)["check"]["recompute_max_relative"] < 1e-5, "what it writes to is overwritten"
    ask(session, "lens", run=run)
    ask(session, "effects", run=run, at=["decoder.blocks.1.attn.z[h=0]"])


def test_features_that_are_not_there(session: Session):
    with pytest.raises(UserError, match="at: expected features of this model"):
        ask(session, "features", run={"text": "one"}, at=AT, position=0)
    with pytest.raises(UserError, match="position: expected one below"):
        ask(session, "features", run={"text": "one"}, at=f"{AT}.features", position=9)
