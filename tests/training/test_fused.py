"""A step without PyTorch's wrapping changes what PyTorch's own step changes."""

import copy

import pytest
import torch
from torch import nn

from clearhead.training import update_rules


@pytest.mark.parametrize("divisor", [None, torch.tensor(2.5)])
def test_a_step_equals_that_of_pytorch(divisor: torch.Tensor | None):
    """To the bit: weights, moments and counts, also of parameters that have no gradient at first, or none at all."""
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(7, 5), nn.Linear(5, 3), nn.Linear(3, 3))
    theirs = copy.deepcopy(ours)

    def groups(network: nn.Module) -> torch.optim.AdamW:
        weights, biases = (
            [p for p in network.parameters() if p.ndim > 1],
            [p for p in network.parameters() if p.ndim < 2],
        )
        both = [{"params": weights, "weight_decay": 0.1}, {"params": biases, "weight_decay": 0.0}]
        return torch.optim.AdamW(both, lr=1e-2, betas=(0.8, 0.95), eps=1e-6, fused=True)

    first, second = groups(ours), groups(theirs)
    for i in range(5):
        x = torch.randn(4, 7)
        for network, optimizer in ((ours, first), (theirs, second)):
            optimizer.zero_grad()
            optimizer.param_groups[0]["lr"] = 1e-2 / (i + 1)
            (network[:2](x) if i else network[:1](x)).square().sum().backward()
        update_rules.fused_adamw_step(first, divisor)
        second.grad_scale = divisor  # pyrefly: ignore[missing-attribute]
        second.step()
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=0, atol=0)
    assert len(first.state) == len(second.state) == 4
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(dict(first.state[p]), dict(second.state[q]), rtol=0, atol=0)
