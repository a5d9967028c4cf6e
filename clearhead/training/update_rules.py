"""AdamW for 16-bit weights: an update is computed in float32, and rounded up or down at random.

Rounding to nearest loses every update below 1/256 of a weight. Stochastic rounding is right on average: it rounds up
with the probability of the part that it cuts off (Gupta et al. 2015, "Deep learning with limited numerical precision";
Zamirai et al. 2020, "Revisiting bfloat16 training"). It draws from PyTorch's own generator, which the training loop
seeds for each step, so a resumed run rounds like one that was never stopped.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from clearhead.model import Transformer

PIECE = {"cpu": 1 << 18}
"""Numbers rounded at a time, by device: few enough for the cache of a CPU."""
LARGEST_PIECE = 1 << 24


def store_in_bfloat16(network: Transformer) -> None:
    """Round the matrices of linear layers, in place.

    Embeddings and heads tied to them stay in float32, because 16 bits cannot sum the many gradients of a frequent
    token. Biases and norms stay in float32 because they are small.
    """
    tables = {id(m.weight) for m in network.modules() if isinstance(m, nn.Embedding)}
    for module in network.modules():
        if isinstance(module, nn.Linear) and id(module.weight) not in tables:
            module.weight.data = module.weight.data.bfloat16()


class Rounding:
    """The random bits of one step, which all pieces of all tensors share."""

    def __init__(self, device: torch.device) -> None:
        self.piece = PIECE.get(device.type, LARGEST_PIECE)
        # One 64-bit draw for four numbers.
        draws = torch.empty(self.piece // 4, dtype=torch.int64, device=device).random_(-(2**63), None)
        self.chances = draws.view(torch.int16).to(torch.int32).add_(1 << 15)

    def pieces(self, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Views of a piece of each of these contiguous tensors of one size, piece after piece."""
        return zip(*(tensor.view(-1).split(self.piece) for tensor in tensors), strict=True)

    def store(self, kept: Tensor, exact: Tensor) -> None:
        """kept <- exact, in float32, each rounded to a neighbour so that the mean is exact. Overwrites `exact`."""
        # bfloat16 is the upper half of float32: a sum in the lower half carries into it, or does not.
        for half, full in self.pieces(kept.view(torch.int16), exact.view(torch.int32)):
            half.copy_(full.add_(self.chances[: len(full)]).bitwise_right_shift_(16))


class RoundedAdamW(torch.optim.Optimizer):
    """AdamW (Loshchilov & Hutter 2019) with stochastically rounded means, and maybe weights, in bfloat16."""

    def __init__(self, groups: list[dict[str, object]], *, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyrefly: ignore[bad-override]
        """One update of every weight that has a gradient."""
        rounding: dict[torch.device, Rounding] = {}
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    for name in ("exp_avg", "exp_avg_sq"):
                        state[name] = torch.zeros_like(weight, dtype=torch.bfloat16)
                    state["step"] = torch.zeros((), device=weight.device)
                state["step"] += 1
                if weight.device not in rounding:
                    rounding[weight.device] = Rounding(weight.device)
                self._step(group, weight, state, rounding[weight.device])

    @staticmethod
    def _step(group: dict[str, float], weight: Tensor, state: dict[str, Tensor], rounding: Rounding) -> None:
        beta1, beta2 = group["betas"]  # pyrefly: ignore[not-iterable]
        assert weight.grad is not None
        for kept in rounding.pieces(weight, weight.grad.contiguous(), state["exp_avg"], state["exp_avg_sq"]):
            w, g, mean, square = (one.float() for one in kept)
            adamw(
                [w], [g], [mean], [square], [], [state["step"] - 1], fused=True, amsgrad=False, maximize=False,
                lr=group["lr"], beta1=beta1, beta2=beta2, weight_decay=group["weight_decay"], eps=group["eps"],
            )  # fmt: skip
            for one, exact in ((kept[0], w), (kept[2], mean), (kept[3], square)):
                if one.dtype == torch.bfloat16:
                    rounding.store(one, exact)
