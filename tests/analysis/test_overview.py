"""The overview against single edits, made one at a time."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from clearhead import config as c
from clearhead.analysis import overview
from clearhead.analysis.metrics import mean_states
from clearhead.analysis.overview import CURVES, Overview
from clearhead.errors import UserError
from clearhead.model import Layout, Tokens, Transformer
from clearhead.model.heads import scores
from clearhead.trace import Address, Edit, zero
from tests.analysis.kinds import traced
from tests.analysis.test_scores import inputs, shaken
from tests.explorer.traced import CONFIGS
from tests.small_sounds import sound, speech_model


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
        return 1 - torch.cosine_similarity(p, q, dim=0).item()
    return (p - q).abs().sum().item() / 2


EDITS: dict[str, dict[str, Edit]] = {
    "plain": {},
    "off": {"0.attn.z[h=1]": zero},
    "set": {"1.ffn.out[t=2]": 0.5},
    "word": {"0.resid_pre[t=1]": zero},
}


@pytest.mark.parametrize(
    ("name", "by"),
    [(name, by) for i, name in enumerate(CONFIGS) for j, by in enumerate(EDITS) if by == "plain" or (i + j) % 3 == 0],
)
def test_each_number_is_what_a_single_edit_moves(name: str, by: str):
    """Each network as it is, and with one of the edits, in turn."""
    network = shaken(CONFIGS[name])
    given = inputs(network)
    last = list(network.stacks())[-1]
    edit = {f"{last}.blocks.{at}": value for at, value in EDITS[by].items()}
    seen, _ = traced(network, given, edit)
    found = Overview(network, given, edit=edit)
    plain = answer(network, given, edit, found.position)
    if not found.is_vector:
        torch.testing.assert_close(found.answer, plain, atol=1e-5, rtol=0)

    def check(at: str, value: Edit, expected: float) -> None:
        got = moved(network, plain, answer(network, given, {**edit, at: value}, found.position))
        assert got == pytest.approx(expected, abs=1e-5), at

    for one in found.heads:
        check(one.at, zero, one.moved)
    assert 0 < len(found.curves) <= CURVES
    for curve in found.curves[::9]:
        assert curve.weight == pytest.approx(float(seen[curve.at]), abs=1e-5)
        check(curve.at, zero, curve.moved)
    for stack, lanes in found.lanes.items():
        for i, row in enumerate(lanes.tolist()):
            at = f"{stack}.blocks.{i - 1}.resid_post" if i else f"{stack}.blocks.0.resid_pre"
            for t in range(len(row)):
                check(f"{at}[t={t}]", zero, row[t])
        for i, row in enumerate(found.ffn[stack].tolist()):
            for t in range(len(row)):
                check(f"{stack}.blocks.{i}.ffn.out[t={t}]", zero, row[t])
    assert found.lanes.keys() == network.stacks().keys()


@pytest.mark.parametrize("name", ["decoder_pre_learned", "encoder_decoder_post", "encoder_states", "vision"])
def test_what_the_budget_does_not_reach_is_not_a_number(name: str, monkeypatch: pytest.MonkeyPatch):
    """What it reaches is the same as without one, in the lanes of the tokens that share none too."""
    monkeypatch.setattr(overview, "LANES", 3)
    monkeypatch.setattr(overview, "REGIONS", 1)
    network = shaken(CONFIGS[name])
    given = inputs(network)
    whole = Overview(network, given)
    some = Overview(network, given, budget=0, position=whole.position)
    some.lanes_of = whole.lanes_of
    heads = [torch.tensor([head.moved for head in one.heads]) for one in (some, whole)]
    pairs = [(heads[0], heads[1])]
    pairs += [(some.lanes[at], whole.lanes[at]) for at in whole.lanes] + [
        (some.ffn[at], whole.ffn[at]) for at in whole.ffn
    ]
    for one, other in pairs:
        reached = ~one.isnan()
        assert not other.isnan().any()
        torch.testing.assert_close(one[reached], other[reached], atol=1e-5, rtol=0)
    assert 0 < int((~heads[0].isnan()).sum()) < len(heads[0])
    assert some.curves
    seen, plain = traced(network, given)[0], whole.answer
    for stack, lanes in whole.lanes_of.items():
        at = f"{stack}.blocks.1.resid_pre"
        assert sorted(t for lane in lanes for t in lane) == [*range(seen[at].shape[1])]
        ((j, many),) = [(j, lane) for j, lane in enumerate(lanes) if len(lane) > 1]
        edit: dict[str, Edit] = {f"{at}[t={t}]": zero for t in many}
        if not whole.is_vector:
            expected = moved(network, plain, answer(network, given, edit, whole.position))
            assert float(whole.lanes[stack][1, j]) == pytest.approx(expected, abs=1e-5)


def test_a_weight_of_a_lane_is_the_sum_of_its_tokens_weights():
    """A sound's lanes are stretches of time, and the silence after its end; several parts are left out together."""
    model = speech_model()
    network, given = model.network, model.reader.inputs(sound(1, 0.4), "ab", model.generation)
    found, seen = Overview(network, given), traced(network, given)[0]
    lanes = found.lanes_of["encoder"]
    assert [t for lane in lanes for t in lane] == [*range(50)]
    assert len(lanes) == overview.STRETCHES + 1
    assert lanes[-1][0] == pytest.approx(20, abs=2)
    curves = [one for one in found.curves if ".cross" in one.at]
    for one in curves[::7]:
        where = Address.parse(one.at)
        h, t, s = dict(where.index).values()
        (lane,) = [lane for lane in lanes if lane[0] == s]
        edit: dict[str, Edit] = {f"{where.path}[h={h},t={t},s={i}]": zero for i in lane}
        assert one.weight == pytest.approx(sum(float(seen[at]) for at in edit), abs=1e-5)
        without = answer(network, given, edit, found.position)
        assert one.moved == pytest.approx(moved(network, found.answer, without), abs=1e-5)
    two, three = found.off([" ".join(one.at for one in found.parts[:n]) for n in (2, 3)])
    both: dict[str, Edit] = dict.fromkeys(three.at.split(), zero)
    assert two.at.split() == [at for one in found.parts[:2] for at in one.at.split()]
    assert three.moved == pytest.approx(
        moved(network, found.answer, answer(network, given, both, found.position)), abs=1e-5
    )


def test_the_position_is_that_of_the_best_head():
    network = shaken(CONFIGS["encoder_decoder_post"])
    given = inputs(network)
    found = Overview(network, given)
    best = [max(head.moved for head in Overview(network, given, position=t).heads) for t in range(6)]
    assert found.heads[found.decided].moved == pytest.approx(max(best)) == pytest.approx(best[found.position])
    among = Overview(network, given, among=[1, -1])
    assert among.position == max((1, 5), key=lambda t: best[t])
    with pytest.raises(UserError, match="position 6"):
        _ = Overview(network, given, position=6)


def test_a_vector_is_compared_with_another():
    """What moves is the cosine with that, and `p` is the cosine without the part."""
    network = shaken(CONFIGS["encoder_states"])
    given, toward = inputs(network), torch.randn(16)
    found = Overview(network, given, toward=toward)

    def cosine(edit: Mapping[str, Edit]) -> float:
        return float(torch.cosine_similarity(answer(network, given, edit, 0), toward, dim=0))

    assert found.answer.tolist() == pytest.approx([cosine({})], abs=1e-5)
    for one in (*found.heads, *found.parts):
        assert one.p == pytest.approx(cosine({one.at: zero}), abs=1e-5)
        assert one.moved == pytest.approx(abs(one.p - cosine({})), abs=1e-5)


def test_the_tokens_of_a_word_are_changed_together():
    network = shaken(CONFIGS["encoder_classifier"])
    given = inputs(network)
    seen, _ = traced(network, given)
    words = [[0], [1, 2], *([t] for t in range(3, given[0].ids.shape[1]))]
    found, at = Overview(network, given, words={"encoder": words}), "encoder.blocks.0.resid_pre"
    both = {f"{at}[t={t}]": zero for t in (1, 2)}
    plain, without = (answer(network, given, edit, found.position) for edit in ({}, both))
    assert found.lanes_of == {"encoder": words}
    assert found.parts[1].at == " ".join(both)
    assert found.parts[1].moved == pytest.approx(moved(network, plain, without), abs=1e-5)
    assert found.lanes["encoder"][0, 1] == pytest.approx(found.parts[1].moved, abs=1e-5)
    read = [(Address.parse(one.at), one.weight) for one in found.curves]
    assert read
    for address, weight in read:
        index = dict(address.index)
        lane = next(word for word in words if word[0] == index["s"])
        assert weight == pytest.approx(seen[address.path][0, index["h"], index["t"]][lane].sum().item(), abs=1e-5)
