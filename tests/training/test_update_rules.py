"""Weights in bfloat16 whose updates are rounded by chance."""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from clearhead.errors import UserError
from clearhead.recipe.training import Training
from clearhead.storage.tensors import model_tensors
from clearhead.training import update_rules
from clearhead.training.ranks import Ranks
from clearhead.training.update_rules import RoundedAdamW, Rounding, require_one
from tests.training.tiny import OPTIMIZERS, Kind, finish, go_on, new_run, state, task_of

CPU = torch.device("cpu")
SIXTEEN = {"weights": "bf16", "precision": "bf16"}


def rounded(exact: Tensor) -> Tensor:
    kept = torch.empty_like(exact, dtype=torch.bfloat16)
    Rounding(CPU).store(kept, exact.clone())
    return kept.float()


def test_rounding_is_to_a_neighbour_and_right_on_average():
    torch.manual_seed(0)
    exact = torch.randn(300_000)  # More than one piece.
    down = (exact.view(torch.int32) >> 16 << 16).view(torch.float32)
    up = ((exact.view(torch.int32) >> 16) + 1 << 16).view(torch.float32)
    many = torch.stack([rounded(exact) for _ in range(40)])
    assert ((many == down) | (many == up)).all()
    relative = (many.mean(0) - exact) / exact
    assert relative.abs().mean() < 0.5 * ((exact.bfloat16().float() - exact) / exact).abs().mean()
    assert abs(float(relative.mean())) < 1e-5
    assert torch.equal(rounded(down), down), "what needs no rounding stays"


def test_updates_far_below_a_weight_s_precision_count_all_the_same():
    torch.manual_seed(0)
    weight = nn.Parameter(torch.ones(4096, dtype=torch.bfloat16).view(64, 64))
    adamw = RoundedAdamW([{"params": [weight]}], lr=1e-4, betas=(0.9, 0.99), eps=1e-8)
    for _ in range(50):  # Each an update of lr, of which rounding to nearest would lose all.
        weight.grad = torch.ones_like(weight)
        adamw.step()
    assert float(weight.detach().float().mean()) == pytest.approx(1 - 50 * 1e-4, abs=3e-4)


def test_adamw_is_pytorch_s_but_for_rounding():
    torch.manual_seed(0)
    start = torch.randn(32, 16).bfloat16()
    half, full = nn.Parameter(start.clone()), nn.Parameter(start.float())
    table = nn.Parameter(start.float())
    settings = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8}
    ours = RoundedAdamW([{"params": [half, table], "weight_decay": 0.1}], **settings)
    theirs = torch.optim.AdamW([full], weight_decay=0.1, **settings)
    for _ in range(20):
        gradient = torch.randn(32, 16).bfloat16()
        half.grad, table.grad, full.grad = gradient, gradient.float(), gradient.float()
        ours.step()
        theirs.step()
    moved = (full.detach() - start.float()).norm()
    assert (half.detach().float() - full.detach()).norm() < 0.3 * moved, "20 roundings, each of 2^-8 at most"
    assert (table.detach() - full.detach()).norm() < 0.02 * moved


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["translation", "lm"])
def test_a_resumed_run_equals_an_unbroken_one_to_the_bit(tmp_path: Path, kind: Kind, optimizer: str):
    settings = {**SIXTEEN, "optimizer": OPTIMIZERS[optimizer].model_dump(), "steps": 6, "save_every": 3, "ema": 0.9}
    unbroken = new_run(task_of(kind), tmp_path, **settings)
    losses = finish(unbroken)
    again = go_on(task_of(kind), tmp_path, at=3, out=tmp_path / "again", **settings)
    assert finish(again) == {step: loss for step, loss in losses.items() if step > 3}
    assert state(again) == state(unbroken)


def test_matrices_take_half_and_files_hold_float32(tmp_path: Path):
    run = new_run(task_of("lm"), tmp_path, **SIXTEEN, steps=1)
    finish(run)
    kinds = {name: tensor.dtype for name, tensor in model_tensors(run.network).items()}
    assert kinds["decoder.blocks.0.attn.q.weight"] == torch.bfloat16
    assert {kinds[f"decoder.{name}"] for name in ("embed.tokens.weight", "blocks.0.attn_norm.weight")} == {
        torch.float32
    }
    assert all(p.grad is None for p in run.network.parameters())
    means = run.optimizer.state_tensors()
    assert means["adamw16.decoder.blocks.0.attn.q.weight.exp_avg"].dtype == torch.bfloat16
    assert means["adamw16.decoder.embed.tokens.weight.exp_avg_sq"].dtype == torch.bfloat16
    saved = run.checkpoint().tensors["model.safetensors"]
    assert {tensor.dtype for tensor in saved.values()} == {torch.float32}


def test_where_it_cannot_go_it_is_refused_in_one_line():
    with pytest.raises(ValueError, match="weights: expected fp32 with precision=fp32"):
        Training(steps=1, weights="bf16", precision="fp32")
    with pytest.raises(UserError, match=r"training\.weights: expected fp32 where 2 processes") as caught:
        require_one(Ranks(0, 2))
    assert "\n" not in str(caught.value)


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
