"""x + f(x), the place of the norm, and learned factors of f(x)."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from clearhead.config import StackConfig
from clearhead.model.fast.dropout import dropout
from clearhead.model.mode import Part
from clearhead.model.norm import Norm, build_norm
from clearhead.model.ops import KINDS, Kind, Steps, its_inputs
from clearhead.trace import tap


class Residual:
    """post: Norm(x + f(x))   pre: x + f(Norm(x))   sandwich: x + Norm(f(Norm(x)))   branch: x + Norm(f(x))

    post as in Vaswani et al. 2017, 3.1; pre as in Xiong et al. 2020; sandwich as in Ding et al. 2021; branch as in
    OLMo et al. 2024. It has no weights: a block keeps its norms under their own names.
    """

    def __init__(self, config: StackConfig) -> None:
        self.config = config

    def norms(self) -> tuple[Norm | None, Norm | None]:
        """The norm before the branch or after the sum, and the norm after the branch."""
        place = self.config.norm_place
        first = None if place == "branch" else build_norm(self.config)
        return first, build_norm(self.config) if place in ("sandwich", "branch") else None

    def layer_scale(self) -> "LayerScale | None":
        """The learned factors of a branch, if there are any."""
        value = self.config.layer_scale
        return None if value is None else LayerScale(self.config.d_model, value)

    def __call__(
        self,
        x: Tensor,
        f: Callable[[Tensor], Tensor],
        norms: tuple[Norm | None, Norm | None],
        training: bool,
        *,
        reads: Tensor | None = None,
        scale: float | None = None,
    ) -> Tensor:
        """The residual stream after the branch f, same shape as x; the branch reads `reads`, by default x.

        `scale` is a factor on what joins the stream.
        """
        norm, out_norm = norms
        before, after = (None, norm) if self.config.norm_place == "post" else (norm, None)
        reads = x if reads is None else reads
        branch = f(reads if before is None else before(reads))
        branch = branch if out_norm is None else out_norm(branch)
        branch = branch if scale is None else branch * scale
        branch = dropout(branch, self.config.dropout, training)
        # One type, because PyTorch's kernel for a sum of two types is slow.
        x = x + branch.to(torch.promote_types(x.dtype, branch.dtype))
        return x if after is None else after(x)

    def steps(
        self,
        to: Steps,
        out: str,
        path: str,
        x: str,
        f: Callable[[str], str],
        norms: tuple[Norm | None, Norm | None],
        *,
        reads: str | None = None,
        scale: float | None = None,
    ) -> str:
        """Lists the ops of a call, of the branch `f` at `path`; returns `out`, the address of the result."""
        norm, out_norm = norms
        before, after = (None, norm) if self.config.norm_place == "post" else (norm, None)
        reads = x if reads is None else reads
        branch = f(reads if before is None else before.steps(to, f"{path}_norm", reads))
        branch = branch if out_norm is None else out_norm.steps(to, f"{path}_out_norm", branch)
        with to.inside(path):
            if scale is not None:
                branch = to.do(f"{path}_scaled", "scale", branch, by={"factor": scale})
            branch = to.dropout(branch, self.config.dropout)
            if after is None:
                return to.do(out, "add", x, branch)
            total = to.do(f"{path}_sum", "add", x, branch)
        return to.do(out, "copy", after.steps(to, f"{path}_norm", total))


class LayerScale(Part):
    """x * weight, a learned factor for each component   (Touvron et al. 2021, CaiT, 2)"""

    def __init__(self, width: int, value: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(value * torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """b t d -> b t d"""
        return tap(self, "out", x * self.weight, "b t d")

    def steps(self, to: Steps, path: str, x: str) -> str:
        """Lists the ops of `forward`; returns the address of the result."""
        with to.inside(path):
            return to.do(f"{path}.out", "gain", x, weights=(f"{path}.weight",))


KINDS["gain"] = Kind(lambda call: call.x[0] * call.w[0], saves=its_inputs, width=lambda _: 4)
