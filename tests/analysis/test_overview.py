"""The overview against single edits, made one at a time."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from clearhead import config as c
from clearhead.analysis.metrics import mean_states
from clearhead.analysis.overview import CURVES, Overview
from clearhead.model import Layout, Tokens, Transformer
from clearhead.model.heads import scores
from clearhead.trace import Edit, zero
from tests.analysis.kinds import traced
from tests.analysis.test_scores import inputs, shaken
from tests.explorer.traced import CONFIGS


def answer(network: Transformer, given: list[Tokens], edit: Mapping[str, Edit], position: int) -> Tensor:
    """The probabilities, or the vector."""
    _, result = traced(network, given, edit)
    match network.config.head:
        case c.NoHead():
            return mean_states(result, Layout.of(given[-1]))[0]
        case c.ClassificationHead() as head:
            return scores(head, result)[0]
        case c.SpanHead():
            return result[0].softmax(0).T.flatten() / 2
        case _:
            return result[0, position].softmax(-1)


def moved(network: Transformer, p: Tensor, q: Tensor) -> float:
    if isinstance(network.config.head, c.NoHead):
        return (1 - torch.cosine_similarity(p, q, dim=0).item()) / 2
    return (p - q).abs().sum().item() / 2


@pytest.mark.parametrize("edit", [{}, {"0.attn.z[h=1]": zero}, {"1.ffn.out[t=2]": 0.5}], ids=["plain", "off", "set"])
@pytest.mark.parametrize("name", CONFIGS)
def test_each_number_is_what_a_single_edit_moves(name: str, edit: dict[str, Edit]):
    network = shaken(CONFIGS[name])
    given = inputs(network)
    last = list(network.stacks())[-1]
    edit = {f"{last}.blocks.{at}": value for at, value in edit.items()}
    seen, _ = traced(network, given, edit)
    found = Overview(network, given, edit=edit)
    plain = answer(network, given, edit, found.position)
    if not found.is_vector:
        torch.testing.assert_close(found.answer, plain, atol=1e-5, rtol=0)

    def check(at: str, value: Edit, expected: float) -> None:
        got = moved(network, plain, answer(network, given, {**edit, at: value}, found.position))
        assert got == pytest.approx(expected, abs=1e-5), at

    for at, one in zip(found.heads.at, found.heads.moved.tolist(), strict=True):
        check(at, zero, one)
    assert len(found.curves) == min(found.n_weights, CURVES)
    for curve in found.curves[::9]:
        assert curve.weight == pytest.approx(float(seen[curve.at]), abs=1e-5)
        check(curve.at, zero, curve.moved)
    for stack, lanes in found.lanes.items():
        for i, row in enumerate(lanes.tolist()):
            at = f"{stack}.blocks.{i - 1}.resid_post" if i else f"{stack}.blocks.0.resid_pre"
            for t in range(len(row)):
                check(f"{at}[t={t}]", seen[at][0].mean(0), row[t])
        for i, row in enumerate(found.ffn[stack].tolist()):
            for t in range(len(row)):
                check(f"{stack}.blocks.{i}.ffn.out[t={t}]", zero, row[t])
    assert found.lanes.keys() == network.stacks().keys()
