"""A mixture of experts: the choice, the shares, both ways to compute it, and what it costs."""

from typing import Any

import pytest
import torch

from clearhead import config as c
from clearhead.analysis.ablation import effects
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.model.experts import Mixture
from clearhead.model.fast.int8 import quantized
from clearhead.model.summary import summarize
from clearhead.trace import trace
from tests.model import small
from tests.model.mechanism import properties_of
from tests.model.small import assert_close, ids, sequences

GATED = {"gated": True, "activation": "silu", "norm": "rms", "bias": False}
PLAIN = {"experts": c.Experts(n=3)}
SHARED = GATED | {"experts": c.Experts(n=3, d_ff=7, normalised=True, shared=5, shared_gate=True)}
SIGMOID = GATED | {
    "experts": c.Experts(
        n=6, n_chosen=3, d_ff=7, scores="sigmoid", normalised=True, scale=2.5, n_groups=3, n_groups_chosen=2,
        group_best=2, correction=True, router_bias=True, shared=5,
    )
}  # fmt: skip
SOME = {"n_layers": 3, "experts": c.Experts(n=3, d_ff=9, layers=(1, 2))}
ALL = [PLAIN, SHARED, SIGMOID, SOME]
AT = "decoder.blocks.1.ffn"

# Products of other numbers of rows round otherwise, so causality holds to rounding only. Some experts are not chosen.
WITHOUT = ("causality_is_exact", "gradient_reaches_every_parameter")
test_properties = properties_of(PLAIN, SHARED, SOME, but=WITHOUT)


def chosen(network: Transformer) -> Mixture:
    found = network.get_submodule(AT)
    assert isinstance(found, Mixture)
    return found


@pytest.mark.parametrize("changes", ALL)
def test_rows_by_expert_are_every_expert_at_every_position(changes: dict[str, Any]):
    """Traced and not, in float64: the same results and the same gradients."""
    network, found = small.decoder(**changes).double(), list[dict[str, torch.Tensor]]()
    tokens = Tokens.pad(sequences(5, 8, 1))
    for traced in (False, True):
        network.zero_grad()
        if traced:
            with trace(network):
                logits = network(tokens)
        else:
            logits = network(tokens)
        tokens.real(logits).square().mean().backward()
        grads = {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}
        found.append({"logits": tokens.real(logits).detach()} | grads)
    assert found[0].keys() == found[1].keys()
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, rtol=1e-10, atol=1e-12, msg=name)
    with torch.no_grad():
        one = ids(1, 1)
        with trace(network):
            expected = network(one)
        torch.testing.assert_close(network(one), expected, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_an_edited_choice_is_another_expert():
    network, text = small.decoder(**PLAIN), ids(1, 4)
    forced = {f"{AT}.router.chosen": 0.0, f"{AT}.router.chosen[e=2]": 1.0}
    with trace(network, forced) as seen:
        logits = network(text)
    mixture, x = chosen(network), seen["decoder.blocks.1.ffn_norm.out"]
    share = seen[f"{AT}.router.probabilities[e=2]"][..., None]
    assert_close(seen[f"{AT}.out"], share * mixture.parts[2](x))
    assert not torch.equal(logits, network(text))


def test_cost_is_that_of_the_chosen():
    stack = small.stack(**PLAIN, gated=True)
    found = summarize(c.ModelConfig(decoder=stack), target_length=6)
    row = next(row for row in found.rows if row.component == "experts")
    d, f, t = stack.d_model, stack.d_ff, 6
    assert row.flops == stack.n_layers * 2 * t * (3 * d + 2 * 3 * d * f)
    assert row.parameters == stack.n_layers * (3 * d + 3 * (3 * d * f + 2 * f + d))


def test_layers_with_and_without_experts_are_counted_apart():
    found = summarize(c.ModelConfig(decoder=small.stack(**SOME)), target_length=6)
    rows = {row.component: (row.path, row.count) for row in found.rows if ".ffn" in row.path}
    assert rows == {"feed-forward": ("decoder.blocks.*.ffn", 1), "experts": ("decoder.blocks.*.ffn[experts]", 2)}


@torch.no_grad()
def test_eight_bit_experts_stay_close():
    network, text = small.decoder(**SHARED), ids(2, 6)
    expected = network(text)
    assert (quantized(network)(text) - expected).abs().max() < 0.2 * expected.abs().max()


def test_a_neuron_of_an_expert_is_refused():
    with pytest.raises(UserError, match="a block with experts has only heads"):
        effects(small.decoder(**PLAIN), [ids(1, 4)], [f"{AT}.post[f=1]"])
