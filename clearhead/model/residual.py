"""x + f(x), and the place of the norm."""

from collections.abc import Callable

import torch
from torch import Tensor

from clearhead.config import StackConfig
from clearhead.model.dropout import dropout
from clearhead.model.norm import Norm, build_norm
from clearhead.model.ops import Steps


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

    def __call__(
        self,
        x: Tensor,
        f: Callable[[Tensor], Tensor],
        norms: tuple[Norm | None, Norm | None],
        training: bool,
        *,
        reads: Tensor | None = None,
    ) -> Tensor:
        """The residual stream after the branch f, same shape as x; the branch reads `reads`, by default x."""
        norm, out_norm = norms
        before, after = (None, norm) if self.config.norm_place == "post" else (norm, None)
        reads = x if reads is None else reads
        branch = f(reads if before is None else before(reads))
        branch = branch if out_norm is None else out_norm(branch)
        branch = branch if self.config.branch_scale is None else branch * self.config.branch_scale
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
    ) -> str:
        """List the ops of a call, of the branch `f` at `path`; returns `out`, the address of the result."""
        norm, out_norm = norms
        before, after = (None, norm) if self.config.norm_place == "post" else (norm, None)
        reads = x if reads is None else reads
        branch = f(reads if before is None else before.steps(to, f"{path}_norm", reads))
        branch = branch if out_norm is None else out_norm.steps(to, f"{path}_out_norm", branch)
        with to.inside(path):
            if self.config.branch_scale is not None:
                branch = to.do(f"{path}_scaled", "scale", branch, by={"factor": self.config.branch_scale})
            branch = to.dropout(branch, self.config.dropout)
            if after is None:
                return to.do(out, "add", x, branch)
            total = to.do(f"{path}_sum", "add", x, branch)
        return to.do(out, "copy", after.steps(to, f"{path}_norm", total))
