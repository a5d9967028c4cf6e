"""From the states of a vision tower to vectors of the text model."""

from torch import Tensor, nn

from clearhead.config import PictureInput
from clearhead.model.feedforward import activation_function, activation_steps
from clearhead.model.mode import Part
from clearhead.model.norm import RMSNorm
from clearhead.model.ops import KINDS, Call, Kind, Sized, Steps
from clearhead.trace import tap


class Projector(Part):
    """W join(Norm(pool(states))), or with an activation W2 act(W1 …), of squares of patches   (config/pictures.py)"""

    def __init__(self, config: PictureInput, d_model: int) -> None:
        super().__init__()
        how, reads, width = config.projector, config.reads, config.tower.d_model
        self.n_dropped = 0 if config.keeps_first else reads.n_first
        self.pool, self.join, self.in_order = how.pool, how.join, config.any_size
        self.norm = None if how.norm_eps is None else RMSNorm(width, eps=how.norm_eps, by="one_plus_weight")
        inner = how.width or d_model
        self.up = nn.Linear(width * how.join**2, inner, bias=how.bias)
        self.activation = how.activation
        self.down = nn.Linear(inner, d_model, bias=how.bias) if how.activation else None

    def forward(self, states: Tensor) -> Tensor:
        """n p d -> n p/squares d"""
        x = states[:, self.n_dropped :]
        x = x if self.pool == 1 else tap(self, "pooled", squares(x, self.pool).mean(-2), "b t d")
        x = x if self.norm is None else self.norm(x)
        if self.join > 1:
            x = tap(self, "joined", squares(x, self.join, in_order=self.in_order).flatten(-2), "b t d")
        x = self.up(x)
        if self.down is not None:
            assert self.activation is not None
            x = self.down(tap(self, "act", activation_function(self.activation)(tap(self, "pre", x, "b t f")), "b t f"))
        return tap(self, "out", x, "b t d")

    def steps(self, to: Steps, path: str, x: str) -> str:
        """Lists the ops of `forward`; returns the address of the result."""
        by = {"side": self.join, **({"in_order": 1.0} if self.in_order else {})}
        with to.inside(path):
            x = to.do(f"{path}.patches", "without_first", x, by={"n": self.n_dropped}) if self.n_dropped else x
            x = x if self.pool == 1 else to.do(f"{path}.pooled", "pool_squares", x, by={"side": self.pool})
            x = x if self.norm is None else self.norm.steps(to, f"{path}.norm", x)
            x = x if self.join == 1 else to.do(f"{path}.joined", "join_squares", x, by=by)
        with to.inside(f"{path}.up"):
            x = to.linear(f"{path}.out" if self.down is None else f"{path}.pre", x, self.up, f"{path}.up")
        if self.down is None:
            return x
        with to.inside(f"{path}.down"):
            x = activation_steps(to, f"{path}.act", x, self.activation or "")
            return to.linear(f"{path}.out", x, self.down, f"{path}.down")


def squares(x: Tensor, side: int, *, in_order: bool = False) -> Tensor:
    """… p d -> … p/side² side² d: the patches of a picture by squares, row by row; or that stand so `in_order`."""
    if in_order:
        return x.unflatten(-2, (-1, side**2))
    n = round(x.shape[-2] ** 0.5) // side
    cells = x.unflatten(-2, (n, side, n, side))
    return cells.transpose(-4, -3).flatten(-3, -2).flatten(-4, -3)


def _side(call: Call | Sized) -> int:
    return int(call.op.by["side"])


KINDS |= {
    "without_first": Kind(
        lambda call: call.x[0][int(call.op.by["n"]) :],
        lambda call: (call.x[0].shape[0] - int(call.op.by["n"]), call.x[0].shape[1]),
    ),
    "pool_squares": Kind(
        lambda call: squares(call.x[0], _side(call)).mean(-2),
        lambda call: (call.x[0].shape[0] // _side(call) ** 2, call.x[0].shape[1]),
    ),
    "join_squares": Kind(
        lambda call: squares(call.x[0], _side(call), in_order="in_order" in call.op.by).flatten(-2),
        lambda call: (call.x[0].shape[0] // _side(call) ** 2, call.x[0].shape[1] * _side(call) ** 2),
    ),
}
