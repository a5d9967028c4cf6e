"""Directions: the difference of two sets' means, without what all texts begin with; files; texts written with them."""

import pytest
import torch

from clearhead.api.steering import direction, load_direction, save_direction
from clearhead.errors import UserError
from clearhead.trace import edited
from tests.small_models import model_of

POSITIVE, NEGATIVE = ["one two three", "one two four five six"], ["one two nine", "one two ten eight", "one two seven"]
AT = "decoder.blocks.0.resid_post"


def test_the_difference_of_the_means():
    """A text counts once, whatever its length, from the first position at which the texts differ."""
    model = model_of("nano")
    found = direction(model, POSITIVE, NEGATIVE, at=AT)
    means = []
    for texts in (POSITIVE, NEGATIVE):
        own = [model.trace(text)[0][AT][0] for text in texts]
        n_alike = len(model.reader.ids(["one two"])[0]) - len(model.reader.special_tokens().after)
        means.append(torch.stack([rows[n_alike:].mean(0) for rows in own]).mean(0))
    assert torch.allclose(found.vector, means[0] - means[1], atol=1e-4)


@pytest.mark.parametrize("at", ["encoder.blocks.0.resid_post", "decoder.blocks.0.resid_cross"])
def test_both_stacks_of_a_translator(at: str):
    model = model_of("demo")
    positive, negative = [("one two", "eins zwei")], [("three", "drei vier")]
    found = direction(model, positive, negative, at=at)
    with edited(model.network, found.edit(1.0)):
        steered = model.logits("one two", "eins zwei")
    assert not torch.allclose(steered, model.logits("one two", "eins zwei"), atol=1e-3)
    if at.startswith("encoder"):  # Whose first token need not be alike in another text.
        seen = [model.trace(*pair)[0][at][0].mean(0) for pair in (*positive, *negative)]
        assert torch.allclose(found.vector, seen[0] - seen[1], atol=1e-4)


def test_files(tmp_path):
    model = model_of("nano")
    found = direction(model, POSITIVE, NEGATIVE, at=AT)
    file = save_direction(found, tmp_path / "d.safetensors")
    again = load_direction(file)
    assert again.at == AT
    assert torch.equal(again.vector, found.vector)
    with pytest.raises(UserError, match="expected no file there"):
        save_direction(found, file)
    (tmp_path / "no.safetensors").write_bytes(b"no")
    with pytest.raises(UserError, match="expected a whole safetensors file"):
        load_direction(tmp_path / "no.safetensors")


@pytest.mark.parametrize(
    ("positive", "at", "message"),
    [
        ([], AT, "positive: expected texts, got none"),
        (["one"], f"{AT}[t=0]", "got one with an index"),
        (["one"], "resid_post", "begins with decoder"),
        (["one"], "decoder.blocks.0.attn.q", "expected one vector for each position"),
        (["one"], "decoder.blocks.8.resid_post", "no such address in this trace"),
    ],
)
def test_what_is_no_direction(positive: list[str], at: str, message: str):
    with pytest.raises(UserError, match=message):
        direction(model_of("nano"), positive, ["two"], at=at)
