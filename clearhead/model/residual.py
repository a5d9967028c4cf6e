"""x + f(x), and where the norm goes."""

from collections.abc import Callable

from torch import Tensor, nn

from clearhead.config import StackConfig
from clearhead.model.dropout import dropout
from clearhead.model.norm import build_norm


class Residual:
    """post: Norm(x + f(x))   pre: x + f(Norm(x))   sandwich: x + Norm(f(Norm(x)))

    post as in Vaswani et al. 2017, 3.1; pre as in Xiong et al. 2020; sandwich as in Ding et al. 2021. It owns no
    weights: a block keeps its norms under their own names.
    """

    def __init__(self, config: StackConfig) -> None:
        self.config = config

    def norms(self) -> tuple[nn.Module, nn.Module | None]:
        """The norm of one residual, and the second one of a sandwich."""
        second = build_norm(self.config) if self.config.norm_place == "sandwich" else None
        return build_norm(self.config), second

    def __call__(
        self,
        x: Tensor,
        f: Callable[[Tensor], Tensor],
        norms: tuple[nn.Module | None, nn.Module | None],
        training: bool,
    ) -> Tensor:
        """The residual stream after the branch f, same shape as x."""
        norm, out_norm = norms
        before, after = (None, norm) if self.config.norm_place == "post" else (norm, None)
        branch = f(x if before is None else before(x))
        branch = branch if out_norm is None else out_norm(branch)
        x = x + dropout(branch, self.config.dropout, training)
        return x if after is None else after(x)
