"""Analyses of a text with a picture, whose passes begin at a block: they say what a trace of the whole pass says."""

import numpy as np
import pytest
import torch
from torch import Tensor

from clearhead.analysis.ablation import effects
from clearhead.analysis.circuits import Circuits
from clearhead.analysis.circuits.patching import read_again
from clearhead.analysis.metrics import LogitDifference
from clearhead.analysis.overview import Overview
from clearhead.analysis.sweep import PatchingSweep
from clearhead.api import Model, load
from clearhead.model import Tokens
from clearhead.trace import Edit, trace
from tests.small_pictures import pictured

FAMILIES = "qwen2_5_vl", "paligemma", "gemma3", "llava"
"""Places by row and column; a prompt that is seen whole; a picture that is seen whole; neither."""


@pytest.fixture(scope="module", params=FAMILIES)
def ours(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp(request.param)
    pictured(folder, request.param)
    return load(folder)


def text(ours: Model, words: str = "what is this") -> Tokens:
    picture = (np.arange(16 * 24 * 3).reshape(16, 24, 3) % 251).astype(np.uint8)
    (tokens,) = ours.inputs(words, image=picture)
    return tokens


def logits(ours: Model, tokens: Tokens, edit: dict[str, Edit] | None = None) -> Tensor:
    """t v: those of the whole pass."""
    with torch.no_grad(), trace(ours.network.eval(), edit):
        return ours.network(tokens)[0]


def sites(ours: Model, tokens: Tokens) -> list[str]:
    """Heads, and states of the picture's first vector and of the text after it."""
    assert ours.config.pictures is not None
    first, last = int((tokens.ids[0] == ours.config.pictures.mark_id).nonzero()[0]), tokens.grid[1] - 2
    return [f"decoder.blocks.{i}.attn.z[h={h}]" for i in (0, 1) for h in (0, 1)] + [
        f"decoder.blocks.{i}.resid_pre[t={t}]" for i in (0, 1) for t in (first, last)
    ]


def test_effects_and_the_overview_are_those_of_whole_passes(ours):
    tokens = text(ours)
    plain, heads = logits(ours, tokens).log_softmax(-1), sites(ours, tokens)[:4]
    without = {site: logits(ours, tokens, {site: 0.0}).log_softmax(-1) for site in sites(ours, tokens)}
    for position in (None, -1):
        each = slice(None) if position is None else slice(-1, None)
        found = effects(ours.network, [tokens], heads, position=position)
        for site in heads:
            expected = (plain.exp() * (plain - without[site]))[each].sum(-1).mean()
            assert found[site] == pytest.approx(float(expected), rel=1e-3, abs=1e-5)
    overview, whole = Overview(ours.network, [tokens]), plain[-1].exp()
    for one in overview.off([*without]):
        other = without[one.at][-1].exp()
        assert one.p == pytest.approx(float(other[whole.argmax()]), abs=1e-5)
        assert one.moved == pytest.approx(float((other - whole).abs().sum()) / 2, abs=1e-5)


def test_a_batch_has_the_mean_effect_of_its_texts(ours):
    some = [text(ours), text(ours, "what is red")]
    values = {name: [getattr(one, name) for one in some] for name in ("ids", "pictures", "grids")}
    batch = Tokens(**{name: torch.cat(each) for name, each in values.items() if each[0] is not None})
    heads = sites(ours, batch)[:4]
    each = [effects(ours.network, [one], heads, position=-1) for one in some]
    for site, found in effects(ours.network, [batch], heads, position=-1).items():
        assert found == pytest.approx(sum(one[site] for one in each) / 2, rel=1e-3, abs=1e-5)


def test_patched_states_restore_what_a_whole_pass_with_them_does(ours):
    clean, corrupt = text(ours), text(ours, "what is red")
    with torch.no_grad(), trace(ours.network.eval()) as seen:
        given = ours.network(clean)[0]
    own, n = logits(ours, corrupt), clean.grid[1]
    answer, minus = int((given - own)[-1].argmax()), int((given - own)[-1].argmin())
    sweep = PatchingSweep(ours.network, [clean], [corrupt], [answer], minus=[minus])

    def difference(of: Tensor) -> float:
        return float(of[-1, answer] - of[-1, minus])

    low, high = difference(own), difference(given)
    for at, axis, cells in (("attn.z", "h", (0, 1)), ("resid_pre", "t", (n - 2, n - 1))):
        path = f"decoder.blocks.1.{at}"
        restored = sweep.row(path).restored
        for i in cells:
            value = seen[path][:, i]
            patched = difference(logits(ours, corrupt, {f"{path}[{axis}={i}]": value}))
            assert float(restored[i]) == pytest.approx((patched - low) / (high - low), abs=1e-3)


def test_a_reader_of_a_circuit_makes_what_the_whole_pass_made(ours):
    tokens = text(ours)
    with torch.no_grad(), trace(ours.network.eval()) as whole:
        ours.network(tokens)
    circuits = Circuits(ours.network, [tokens], "zero", LogitDifference([17], [6]))
    groups = [group for group in circuits.parts.groups if group.branch is not None]
    for group in groups:
        for path, made in read_again(circuits, group, circuits.seen[group.stream][None]).items():
            torch.testing.assert_close(made[0], whole[path], atol=1e-5, rtol=1e-4)
