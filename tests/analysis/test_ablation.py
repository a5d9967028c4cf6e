import copy

import pytest
import torch

from clearhead import config as c
from clearhead.analysis.ablation import Ablations, effects, without
from clearhead.analysis.metrics import LogitDifference, mean_states
from clearhead.errors import UserError
from clearhead.model import Layout, Tokens, Transformer
from clearhead.trace import Edit, trace, zero
from tests.analysis.kinds import CASES, right, spans, traced
from tests.analysis.test_scores import shaken
from tests.explorer.traced import CONFIGS, V
from tests.model import small

SITE = "encoder.blocks.1.attn.z[h=2]"


def unplugged(network: Transformer, site: str) -> Transformer:
    """The same network with the columns of its output projection at 0 that read this head or neuron."""
    network = copy.deepcopy(network)
    path, _, index = site.removesuffix("]").partition("[")
    name, part = path.rsplit(".", 1)
    i = int(index.split("=")[1])
    width = network.last_stack.config.head_width if part == "z" else 1
    projection = network.get_submodule(f"{name}.{'out' if part == 'z' else 'down'}")
    with torch.no_grad():
        projection.get_parameter("weight")[:, i * width : (i + 1) * width] = 0
    return network


def sites_of(network: Transformer) -> list[str]:
    """Every head of every attention, and two neurons of every feed-forward."""
    sites: list[str] = []
    for name, stack in network.stacks().items():
        for i in (1, 0):
            kinds = ("attn", "cross") if stack.cross else ("attn",)
            sites += [f"{name}.blocks.{i}.{kind}.z[h={h}]" for kind in kinds for h in range(stack.config.n_heads)]
            sites += [f"{name}.blocks.{i}.ffn.post[f={f}]" for f in (5, 0)]
    return sites


def divergence(network: Transformer, other: Transformer, inputs: list[Tokens], position: int | None) -> float:
    """KL by hand, of the networks themselves."""
    with torch.no_grad():
        p, q = (net(*(x.padded() for x in inputs)).double().log_softmax(-1) for net in (network, other))
    each = (p.exp() * (p - q)).sum(-1)
    if each.ndim == 1:
        return each.mean().item()
    last = inputs[-1]
    valid = torch.ones(last.grid, dtype=torch.bool) if last.valid is None else last.valid
    chosen = valid if position is None else valid & (torch.arange(valid.shape[1]) == position % valid.shape[1])
    return each[chosen].mean().item()


def said(inputs: list[Tokens], logits: torch.Tensor) -> torch.Tensor:
    """Logits of real positions: an edit leaves padding as it is."""
    return inputs[-1].padded().real(logits) if logits.ndim == 3 else logits


@pytest.mark.parametrize("name", CASES)
def test_without_is_the_network_without_its_columns(name: str):
    network, inputs = CASES[name]()
    prefix = next(iter(network.stacks()))
    for site in (f"{prefix}.blocks.1.attn.z[h=2]", f"{prefix}.blocks.0.ffn.post[f=7]"):
        with torch.no_grad():
            expected = unplugged(network, site)(*(x.padded() for x in inputs))
        small.assert_close(said(inputs, without(network, inputs, [site])), said(inputs, expected))


@pytest.mark.parametrize(
    ("name", "position", "budget"),
    [*((name, 3, 40) for name in CASES), *((name, None, n) for name in ("decoder", "pictures") for n in (1, 100_000))],
)
def test_effects_are_the_divergence_without_the_columns(name: str, position: int | None, budget: int):
    network, inputs = CASES[name]()
    sites = sites_of(network)
    found = effects(network, inputs, sites, position=position, budget=budget)
    assert list(found) == sites, "in the order asked for"
    for site, effect in found.items():
        expected = divergence(network, unplugged(network, site), inputs, position)
        assert effect == pytest.approx(expected, abs=2e-6, rel=1e-3), site


@pytest.mark.parametrize("name", CASES)
def test_effects_in_an_edited_network(name: str):
    """Three ways to say the same edit; parts of the edited value itself are taken away after it."""
    network, inputs = CASES[name]()
    at = f"{next(iter(network.stacks()))}.blocks.0.ffn.post"
    sites = [f"{at}[f=5]", at.replace("0.ffn.post", "1.attn.z[h=2]")]
    same: list[dict[str, Edit]] = [{at: 0.5}, {at: torch.tensor(0.5)}, {at: lambda x: x * 0 + 0.5}]
    found = [
        Ablations(network, inputs, edit=edit).effects(sites, budget=budget)
        for edit, budget in zip(same, (1, 99, 999), strict=True)
    ]
    for one in found:
        assert one == pytest.approx(found[0], rel=1e-3, abs=2e-6)
    assert all(effect > 0 for effect in found[0].values())
    assert found[0] != pytest.approx(effects(network, inputs, sites), rel=1e-2)
    none = Ablations(network, inputs, edit={f"{at}[f=5]": zero}).effects(sites[:1])
    assert none[sites[0]] == pytest.approx(0, abs=2e-6)


def test_spans_are_distributions_over_positions():
    network, inputs = spans()
    site = "encoder.blocks.0.attn.z[h=1]"
    with torch.no_grad():
        closed = ~(inputs[0].valid if inputs[0].valid is not None else torch.ones(2, 6, dtype=torch.bool))
        p, q = (
            net(*inputs).masked_fill(closed[..., None], -1e9).log_softmax(1)
            for net in (network, unplugged(network, site))
        )
    assert effects(network, inputs, [site])[site] == pytest.approx((p.exp() * (p - q)).sum(1).mean().item(), abs=2e-6)


def test_mean_is_over_the_real_positions():
    network, inputs = CASES["encoder_decoder"]()
    source, target = inputs
    assert source.valid is not None
    assert target.valid is not None
    seen, _ = traced(network, inputs)
    for site, path, valid in (
        ("decoder.blocks.0.attn.z[h=2]", "decoder.blocks.0.attn.z", target.valid),
        ("decoder.blocks.1.cross.v[h=2]", "decoder.blocks.1.cross.v", source.valid),
    ):
        average = seen[path][:, 2][valid].mean(0)
        _, expected = traced(network, inputs, {site: average})
        small.assert_close(without(network, inputs, [site], how="mean"), expected)
    small.assert_close(
        without(network, inputs, ["decoder.blocks.0.ffn.post[f=3,t=5]"], how="mean")[:, :5],
        without(network, inputs, [])[:, :5],
    )


@pytest.mark.parametrize(
    "site",
    [
        "decoder.blocks.0.attn.z", "decoder.blocks.2.attn.z[h=0]", "decoder.blocks.0.attn.z[h=4]",
        "decoder.blocks.0.cross.z[h=0]", "encoder.blocks.0.attn.z[h=0]", "decoder.blocks.0.ffn.post[h=0]",
        "head.logits[v=1]",
    ],
)  # fmt: skip
def test_refusals(site: str):
    network, inputs = CASES["decoder"]()
    with pytest.raises(UserError, match="expected a head or neuron"):
        effects(network, inputs, [site])
    with pytest.raises(UserError, match="did you mean"):
        without(network, inputs, ["decoder.blocks.0.attn.zz"])
    with pytest.raises(UserError, match="stack"):
        effects(network, [], sites_of(network))
    with pytest.raises(UserError, match="position 9"):
        effects(network, inputs, sites_of(network), position=9)


def test_a_network_without_logits_has_the_shift_of_its_vector():
    network, inputs = small.shaken(Transformer(c.ModelConfig(encoder=small.stack(), head=c.NoHead()))), [right()]
    with torch.no_grad():
        plain, layout = network(inputs[0]), Layout.of(inputs[0])
        for vectors in (mean_states, lambda states, _: states[:, 0]):
            found = effects(network, inputs, [SITE], vectors=vectors)[SITE]
            other = unplugged(network, SITE)(inputs[0])
            expected = 1 - torch.cosine_similarity(vectors(plain, layout), vectors(other, layout)).mean().item()
            assert found == pytest.approx(expected, abs=1e-6)
            assert found > 1e-4
        edited = Ablations(network, inputs, edit={"encoder.blocks.0.ffn.post": 0.5}).effects([SITE])[SITE]
    assert edited != pytest.approx(found, rel=1e-2)


@pytest.mark.parametrize("edit", [{}, {"encoder.blocks.0.ffn.post": 0.5}], ids=["plain", "edited"])
def test_the_fall_of_a_label_s_logit(edit: dict[str, Edit]):
    network, inputs = CASES["pictures"]()
    ablations = Ablations(network, inputs, metric=LogitDifference(3), edit=edit)
    with torch.no_grad(), trace(network, edit):
        expected = network(*inputs)[:, 3]
    with torch.no_grad():
        other = unplugged(network, SITE)
        with trace(other, edit):
            expected = expected - other(*inputs)[:, 3]
    found = dict(ablations.answers([SITE]))[SITE]
    assert ablations.divergences(found).tolist() == pytest.approx(expected.tolist(), abs=1e-5)
    assert ablations.divergence(found) == pytest.approx(expected.mean().item(), abs=1e-5)


@pytest.mark.parametrize("base", [{}, {"blocks.0.ffn.post": 0.5}], ids=["plain", "edited"])
@pytest.mark.parametrize("name", CASES)
def test_sets_of_edits_are_passes_of_their_own(name: str, base: dict[str, Edit]):
    network, inputs = CASES[name]()
    last, first = list(network.stacks())[-1], next(iter(network.stacks()))
    base = {f"{first}.{at}": edit for at, edit in base.items()}
    sets: list[dict[str, Edit]] = [
        {f"{last}.blocks.1.attn.weights[h=1,t=4,s=4]": 0.0},
        {f"{first}.embed.sum[t=1]": lambda x: x * 2, f"{last}.blocks.1.ffn.out[t=-1]": zero},
        {f"{first}.blocks.{i}.resid_post[t=2]": 0.25 for i in (0, 1)},
        {f"{last}.blocks.0.attn.z[h=1]": zero, f"{last}.blocks.0.attn.z[h=2]": 0.5},
        {"head.logits": lambda x: x * 3},
        {},
    ]
    ablations = Ablations(network, inputs, edit=base)
    found = dict(ablations.edited(sets, budget=30))
    for i, own in enumerate(sets):
        _, logits = traced(network, [x.padded() for x in inputs], {**base, **own})
        logs = said(inputs, logits).log_softmax(-1)
        small.assert_close(found[i], logs)
    with pytest.raises(UserError, match="did you mean"):
        list(ablations.edited([{f"{last}.blocks.0.attn.zz": zero}]))


@pytest.mark.parametrize("base", [{}, {"decoder.blocks.1.attn.k[h=1]": 0.5}], ids=["plain", "edited"])
@pytest.mark.parametrize("name", [name for name in CONFIGS if "decoder" in name])
def test_copies_share_the_keys_of_a_text(name: str, base: dict[str, Edit]):
    """Few positions of many copies read one row of keys, in the last block too, where only one is computed."""
    network, draw = shaken(CONFIGS[name]), torch.Generator().manual_seed(0)
    inputs = [Tokens(torch.randint(3, V, (1, 24), generator=draw)) for _ in network.stacks()]
    values = ("0.ffn.out", "0.resid_pre", "1.attn.z", "1.attn.q")
    for t in (23, 20):
        sets: list[dict[str, Edit]] = [{f"decoder.blocks.{at}[t={t}]": zero} for at in values]
        for some in (sets[:2], sets):
            for i, found in Ablations(network, inputs, position=-1, edit=base).edited(some):
                expected = traced(network, inputs, {**base, **some[i]})[1][:, -1].log_softmax(-1)
                torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
