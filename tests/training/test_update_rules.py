"""Weights in bfloat16 whose updates are rounded by chance."""

import pytest
import torch
from torch import Tensor, nn

from clearhead.errors import UserError
from clearhead.recipe.training import Training
from clearhead.storage.tensors import model_tensors
from clearhead.training.ranks import Ranks
from clearhead.training.sharding import check_ranks
from clearhead.training.update_rules import RoundedAdamW, Rounding
from tests.training.tiny import finish, new_network, new_run, task_of

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


def test_matrices_take_half_and_files_hold_float32(tmp_path):
    run = new_run(task_of("lm"), tmp_path, **SIXTEEN, steps=1)
    finish(run)
    kinds = {name: tensor.dtype for name, tensor in model_tensors(run.network).items()}
    assert kinds["decoder.blocks.0.attn.q.weight"] == torch.bfloat16
    assert kinds["decoder.embed.tokens.weight"] == kinds["decoder.blocks.0.attn_norm.weight"] == torch.float32
    assert all(p.grad is None for p in run.network.parameters())
    means = run.optimizer.state_tensors()
    assert means["adamw16.decoder.blocks.0.attn.q.weight.exp_avg"].dtype == torch.bfloat16
    assert means["adamw16.decoder.embed.tokens.weight.exp_avg_sq"].dtype == torch.bfloat16
    saved = run.checkpoint().tensors["model.safetensors"]
    assert {tensor.dtype for tensor in saved.values()} == {torch.float32}


def test_where_it_cannot_go_it_is_refused_in_one_line():
    with pytest.raises(ValueError, match="weights: expected fp32 with precision=fp32"):
        Training(steps=1, weights="bf16", precision="fp32")
    task = task_of("lm")
    with pytest.raises(UserError, match=r"training\.weights: expected fp32 where several processes train, got bf16"):
        check_ranks(new_network(task), task, Training(weights="bf16"), Ranks(0, 2), read="")
