"""Circuits over a data set: the mean of each pair's nodes, and its interval."""

import numpy as np
import pytest

from clearhead.analysis.circuits import patched_nodes
from clearhead.api.circuits import circuits_of
from clearhead.capture import node_effects
from clearhead.capture.texts import Text
from clearhead.errors import UserError
from tests.explorer.traced import CONFIGS, model_of

PAIRS = [("one two three", "one four three"), ("two two one four", "two three one four"), ("four one", "five one")]


@pytest.mark.parametrize("name", ["decoder_rotary_grouped", "encoder_decoder_post"])
def test_effects_are_the_means_over_the_pairs(name: str) -> None:
    model = model_of(CONFIGS[name])
    pairs: list[tuple[Text, Text]] = [*PAIRS]
    if model.is_encoder_decoder:
        pairs = [((clean, "two"), (corrupt, "two")) for clean, corrupt in PAIRS]
    found = node_effects(model, pairs, exact=1.0)
    each: list[dict[str, float]] = []
    for pair in pairs:
        texts = [(text, None) if isinstance(text, str) else (text[0], text[1]) for text in pair]
        inputs = [model.reader.inputs(*text, model.generation) for text in texts]
        each.append(patched_nodes(circuits_of(model, *inputs)[0]))
    for one in found:
        own = [scores[one.site] for scores in each]
        assert one.mean == pytest.approx(np.mean(own), abs=1e-5)
        assert min(own) - 1e-5 <= one.interval[0] <= one.mean + 1e-5
        assert one.mean - 1e-5 <= one.interval[1] <= max(own) + 1e-5
        assert one.exact == 1
    assert len(found) == len(each[0])
    assert [abs(one.mean) for one in found] == sorted((abs(one.mean) for one in found), reverse=True)
    assert 0 < np.mean([one.exact for one in node_effects(model, pairs)]) < 0.5


def test_what_it_refuses() -> None:
    model = model_of(CONFIGS["decoder_rotary_grouped"])
    with pytest.raises(UserError, match="expected pairs of a clean and a corrupt text, got none"):
        node_effects(model, [])
    with pytest.raises(UserError, match="pair 2: corrupt: expected"):
        node_effects(model, [PAIRS[0], ("one two three", "one two")])
