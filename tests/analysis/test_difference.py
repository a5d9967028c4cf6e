"""The difference of two networks: planted changes, and what parts write against a trace of both."""

import copy

import pytest
import torch

from benchmarks.difference import largest_effect, planted, ranked_first
from clearhead import config as c
from clearhead.analysis.difference import PartChanges, check_same, tensor_changes, unit_changes
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.model.attention import Attention
from clearhead.trace import Address, Trace
from tests.analysis.kinds import CASES, traced
from tests.model import small


def shaken_again(network: Transformer, *, size: float = 0.1) -> Transformer:
    other = copy.deepcopy(network)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter += size * torch.randn(parameter.shape, generator=generator)
    return other


@pytest.mark.parametrize("kind", ["head", "neuron", "rank 1"])
def test_a_planted_change_is_ranked_first(kind: str):
    assert all(ranked_first(planted(kind, seed)) for seed in range(8))


@pytest.mark.parametrize("kind", ["head", "busy neuron"])
def test_a_planted_change_has_the_largest_effect(kind: str):
    assert all(largest_effect(planted(kind, seed)) for seed in range(8))


@pytest.mark.parametrize("kind", ["head", "neuron"])
def test_a_change_of_one_part_is_its_own(kind: str):
    """Other parts write something else only because other streams reach them, and only after it."""
    for seed in range(4):
        trial = planted(kind, seed, drift=0.0)
        changes = PartChanges(trial.first, trial.second)
        written = changes.read(trial.inputs).written
        own = dict(zip(changes.sites, written.own.mean(0).tolist(), strict=True))
        assert [site for site, value in own.items() if value] == [trial.place]
        assert tensor_changes(trial.first, trial.second)[0].name.startswith(trial.place.rpartition(".")[0])
        others = [value == 0 for value in own.values()]
        assert torch.equal(written.total[:, others], written.moved[:, others])
        assert written.moved[:, changes.sites.index(trial.place)].max() == 0 < written.total.max()


@pytest.mark.parametrize("name", list(CASES))
def test_what_parts_write_is_what_traces_show(name: str):
    first, inputs = CASES[name]()
    second = shaken_again(first)
    changes = PartChanges(first, second)
    written = changes.read(inputs).written
    tokens = [one.padded() for one in inputs]
    seen: list[Trace] = []
    for network in (first, second):
        values, _ = traced(network, tokens)
        seen.append(values)
    for i, site in enumerate(changes.sites):
        where = Address.parse(site)
        place, n = where.path.rpartition(".")[0], where.index[0][1]
        block, _, part = place.rpartition(".")
        crosses = f"{block}.resid_cross" in seen[0]
        before = {"attn": "resid_pre", "cross": "resid_attn", "ffn": "resid_cross" if crosses else "resid_attn"}
        stream = seen[0][f"{block}.{before[part]}"].norm(dim=-1)
        each = [
            values[site][..., None] * network.get_parameter(f"{place}.down.weight")[:, n]
            if part == "ffn"
            else values[f"{place}.heads[h={n}]"]
            for values, network in zip(seen, (first, second), strict=True)
        ]
        cells = tokens[0 if site.startswith("encoder") else -1].valid
        valid = torch.ones_like(stream) if cells is None else cells.float()
        for found, vector in ((written.before, each[0]), (written.total, each[1] - each[0])):
            expected = (vector.norm(dim=-1) / stream * valid).nan_to_num(0).sum(1) / valid.sum(1)
            torch.testing.assert_close(found[:, i], expected.detach(), rtol=1e-3, atol=1e-5)
    assert (written.total <= written.own + written.moved + 1e-5).all()
    assert (written.own > 0).any()


@pytest.mark.parametrize("name", ["decoder", "decoder_grouped_rotary", "encoder_decoder"])
def test_the_change_of_a_units_weights_is_that_of_its_rows_and_columns(name: str):
    first, _ = CASES[name]()
    assert all(one.score == 0 for one in unit_changes(first, first))
    stack = next(iter(first.stacks()))
    for part, edge, site in (("ffn", "up.weight", "ffn.post[f=3]"), ("attn", "out.weight", "attn.z[h=1]")):
        second, at = copy.deepcopy(first), f"{stack}.blocks.1.{part}.{edge}"
        weight = second.get_parameter(at)
        width = weight.shape[1] // first.stacks()[stack].config.n_heads
        own = (slice(3, 4),) if part == "ffn" else (slice(None), slice(width, 2 * width))
        with torch.no_grad():
            before = weight[own].norm()
            weight[own] *= 1.5
            bias = dict(second.named_parameters()).get(at.replace("weight", "bias"))
            beside = 0.0 if part == "attn" or bias is None else float(bias[3])
        best, *rest = unit_changes(first, second)
        assert (best.site, best.tensor) == (f"{stack}.blocks.1.{site}", at)
        size = float(before) if part == "attn" else (float(before) ** 2 + beside**2) ** 0.5
        assert best.relative == pytest.approx(0.5 * float(before) / size, rel=1e-4)
        assert all(one.score == 0 for one in rest)


def test_a_shared_key_head_counts_for_each_of_its_heads():
    first, _ = CASES["decoder_grouped_rotary"]()
    second, (path, attention) = copy.deepcopy(first), _grouped(first)
    with torch.no_grad():
        second.get_parameter(f"{path}.k.weight")[: attention.d_head] += 1
    found = [one.site for one in unit_changes(first, second) if one.score > 0]
    group = attention.n_heads // attention.n_kv_heads
    assert sorted(found) == [f"{path}.z[h={h}]" for h in range(group)]


def _grouped(network: Transformer) -> tuple[str, Attention]:
    return next(
        (path, module)
        for path, module in network.named_modules()
        if isinstance(module, Attention) and 1 < module.n_kv_heads < module.n_heads
    )


def test_the_spectrum_of_a_change():
    first = small.decoder()
    second = copy.deepcopy(first)
    name = "decoder.blocks.1.ffn.up.weight"
    u, v = torch.linalg.qr(torch.randn(24, 2)).Q, torch.linalg.qr(torch.randn(16, 2)).Q
    with torch.no_grad():
        second.get_parameter(name).add_(u @ torch.diag(torch.tensor([3.0, 1.0])) @ v.T)
    (one,) = tensor_changes(first, second)
    assert (one.name, one.shape, one.rank) == (name, (24, 16), 2)
    assert one.norm == pytest.approx(10**0.5, rel=1e-5)
    assert one.relative == pytest.approx(10**0.5 / float(first.get_parameter(name).detach().norm()), rel=1e-5)
    assert one.singular[:2] == pytest.approx((3.0, 1.0), rel=1e-5)
    assert one.effective_rank == pytest.approx(0.75**-0.75 * 0.25**-0.25, rel=1e-3)
    assert one.first_share == pytest.approx(0.9, rel=1e-5)
    assert tensor_changes(first, first) == []


def test_other_networks_are_refused():
    first = small.decoder()
    with pytest.raises(UserError, match=r"^decoder.d_ff: expected the same in both models, got 24 and 20"):
        check_same(first, small.decoder(d_ff=20))
    with pytest.raises(UserError, match=r"^decoder.norm_place: expected the same in both models, got pre and post"):
        tensor_changes(first, small.decoder(norm_place="post"))
    check_same(first, small.decoder(dropout=0.1))
    labels = [c.ClassificationHead(n_labels=2, labels=names) for names in ((), ("bad", "good"))]
    check_same(*(Transformer(c.ModelConfig(encoder=small.stack(), head=head)) for head in labels))
