"""A grown network computes what the small one computes, and every new weight learns."""

import pytest
import torch
from torch import Tensor

from benchmarks.growth import grown
from clearhead import config as c
from clearhead.model import Transformer

SIZES = {"d_model": 48, "n_heads": 6, "d_ff": 80, "n_layers": 5}


def small(*, tied: bool) -> Transformer:
    stack = c.StackConfig(
        input=c.TokenInput(vocab_size=37),
        d_model=16,
        n_layers=2,
        n_heads=2,
        d_ff=24,
        positions=c.Rotary(),
        norm="rms",
        norm_eps=1e-2,
        activation="silu",
        gated=True,
        bias=False,
    )
    torch.manual_seed(0)
    network = Transformer(c.ModelConfig(decoder=stack, head=c.LanguageHead(tied=tied))).double()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.3)
    return network.eval()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("names", [list(SIZES), ["d_ff"], ["n_layers"], ["d_model", "n_heads"]])
def test_a_grown_network_is_the_same(tied: bool, names: list[str]) -> None:
    network, ids = small(tied=tied), torch.arange(22).view(2, 11)
    large = grown(network, {name: SIZES[name] for name in names}).eval()
    assert sum(p.numel() for p in large.parameters()) > sum(p.numel() for p in network.parameters())
    with torch.inference_mode():
        torch.testing.assert_close(large(ids), network(ids), rtol=1e-12, atol=1e-12)


def test_every_new_weight_learns() -> None:
    large, ids = grown(small(tied=True), SIZES), torch.arange(22).view(2, 11)
    optimizer = torch.optim.SGD(large.parameters(), lr=0.1)

    def gradients() -> dict[str, Tensor]:
        optimizer.zero_grad()
        logits = large(ids[:, :-1])
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
        optimizer.step()
        return {name: p.grad.clone() for name, p in large.named_parameters() if p.grad is not None}

    for _ in range(3):
        found = gradients()
    assert len(found) == len(list(large.parameters()))
    for name, gradient in found.items():
        weights = gradient[:-11] if "embed" in name else gradient  # The last tokens are never read.
        assert (weights != 0).double().mean() > 0.9, name
