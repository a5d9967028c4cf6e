"""A step of PyTorch's fused AdamW on a CPU, without what PyTorch does around its kernel for other devices."""

import torch
from torch import Tensor


@torch.no_grad()
def step(optimizer: torch.optim.AdamW, divisor: Tensor | None) -> None:
    """Updates float32 parameters on a CPU as `optimizer.step()` does, from their gradients divided by `divisor`.

    The result is the same to the bit. Lists of a hundred parameters take a millisecond less (docs/log).
    """
    for group in optimizer.param_groups:
        both = [(p, p.grad) for p in group["params"] if p.grad is not None]
        if not both:
            continue
        parameters = [p for p, _ in both]
        states = [optimizer.state[p] for p in parameters]
        for p, state in zip(parameters, states, strict=True):
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32)
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, 1)
        beta1, beta2 = group["betas"]
        torch._fused_adamw_(
            parameters,
            [gradient for _, gradient in both],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            steps,
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
            grad_scale=divisor,
        )
