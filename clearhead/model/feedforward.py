"""FFN(x) = act(x W_1 + b_1) W_2 + b_2, and its gated form."""

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.config import StackConfig
from clearhead.config.mechanism import is_added, load_added
from clearhead.model.fast.dropout import dropout
from clearhead.model.fast.tensor_parallel import Division
from clearhead.model.linear import narrowed
from clearhead.model.mode import Part
from clearhead.model.ops import KINDS, Call, Deriving, Kind, Sized, Sizes, Steps, its_inputs
from clearhead.trace import tap


def gelu_tanh(x: Tensor) -> Tensor:
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))   (Hendrycks and Gimpel 2016)"""
    return F.gelu(x, approximate="tanh")


def squared_relu(x: Tensor) -> Tensor:
    """max(0, x)^2   (So et al. 2021, Primer)"""
    return F.relu(x).square()


def quick_gelu(x: Tensor) -> Tensor:
    """x sigmoid(1.702 x)   (Hendrycks and Gimpel 2016)"""
    return x * torch.sigmoid(1.702 * x)


def fall(x: Tensor) -> Tensor:
    """e^y - 1 - y,  y = min(0, x)   (Huang and Schlag 2024)"""
    low = x.clamp(max=0)
    return torch.expm1(low) - low


def xielu(x: Tensor) -> Tensor:
    """0.8 (max(0, x)^2 + fall(x)) + x / 2: `Xielu` as it begins"""
    return 0.8 * (squared_relu(x) + fall(x)) + x / 2


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "quick_gelu": quick_gelu,
    "silu": F.silu,
    "squared_relu": squared_relu,
    "xielu": xielu,
    "fall": fall,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "exp": torch.exp,
}


def activation_function(name: str) -> Callable[[Tensor], Tensor]:
    """The function of this name, of this package or another."""
    return load_added(name) if is_added(name) else ACTIVATIONS[name]


class Xielu(Part, Deriving):
    """a max(0, x)^2 + b fall(x) + x / 2, a = softplus(rise), b = 1/2 + softplus(drop)   (Huang and Schlag 2024)"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.rise, self.drop = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))

    @property
    def derived(self) -> dict[str, Tensor]:
        return {"rises": self.rises, "drops": self.drops}

    @property
    def rises(self) -> Tensor:
        """f: the factor above 0."""
        return F.softplus(self.rise).expand(self.width)

    @property
    def drops(self) -> Tensor:
        """f: the factor below 0."""
        return 0.5 + F.softplus(self.drop).expand(self.width)

    def forward(self, x: Tensor) -> Tensor:
        return squared_relu(x) * self.rises + fall(x) * self.drops + x / 2

    def steps(self, to: Steps, path: str, out: str, x: str) -> str:
        """Lists the ops of `forward`; returns `out`."""
        with to.inside(path):
            sides = (
                activation_steps(to, f"{out}.square", x, "squared_relu"),
                activation_steps(to, f"{out}.fall", x, "fall"),
            )
            rise, drop = (
                to.do(f"{side}.times", "gain", side, weights=(f"{path}.{name}",))
                for side, name in zip(sides, ("rises", "drops"), strict=True)
            )
            sides = to.do(f"{out}.sides", "add", rise, drop)
            return to.do(out, "add", sides, to.do(f"{out}.half", "scale", x, by={"factor": 0.5}))


class FeedForward(Part):
    """down(act(up(x)));  gated: down(act(gate(x)) * up(x))   (Vaswani et al. 2017, 3.3; Shazeer 2020)"""

    divisions = (
        Division("gate", "units", "outputs"),
        Division("up", "units", "outputs"),
        Division("down", "units", "inputs"),
    )

    def __init__(self, config: StackConfig, width: int | None = None) -> None:
        """`width` is that of the hidden units, by default d_ff."""
        super().__init__()
        width = width or config.d_ff
        self.curve = Xielu(width) if config.activation == "xielu" else None
        self.act, self.activation = self.curve or activation_function(config.activation), config.activation
        self.dropout = config.ffn_dropout
        self.clamp, self.factor = config.clamp, config.multipliers.gate
        self.gate = nn.Linear(config.d_model, width, bias=config.has_ffn_bias) if config.gated else None
        self.up = nn.Linear(config.d_model, width, bias=config.has_ffn_bias)
        self.down = nn.Linear(width, config.d_model, bias=config.has_down_bias)

    @property
    def first_name(self) -> str:
        """The name of the map whose result the activation reads."""
        return "up" if self.gate is None else "gate"

    @property
    def first(self) -> nn.Module:
        """The map whose result the activation reads."""
        return self.up if self.gate is None else self.gate

    def forward(self, x: Tensor) -> Tensor:
        """b t d -> b t d, each position independently."""
        x = x if self.gate is None else narrowed(x, self.gate, self.up)
        pre = self.first(x)
        pre = tap(self, "pre", pre if self.factor == 1.0 else pre * self.factor, "b t f")
        up = None if self.gate is None else self.up(x)
        post = tap(self, "post", self.activated(pre, up), "b t f")
        return tap(self, "out", self.down(dropout(post, self.dropout, self.training)), "b t d")

    def activated(self, pre: Tensor, up: Tensor | None) -> Tensor:
        """... f -> ... f: the hidden units, of what the maps before them make; `up` is None without a gate."""
        if up is None:
            return self.act(pre)
        if self.clamp is None:
            return self.act(pre) * up
        alpha, limit = self.clamp.alpha, self.clamp.limit
        gate = F.silu(pre.clamp(max=limit) * alpha) * (1 / alpha)
        return gate * up.clamp(-limit, limit) + gate

    def steps(self, to: Steps, path: str, x: str) -> str:
        """Lists the ops of `forward`; returns the address of the result."""
        with to.inside(path):
            pre = to.linear(f"{path}.pre", x, self.first, f"{path}.{self.first_name}")
            if self.factor != 1.0:
                to.named(f"{path}.first")
                pre = to.do(f"{path}.pre", "scale", f"{path}.first", by={"factor": self.factor})
            self.activated_steps(to, path, pre, lambda: to.linear(f"{path}.up", x, self.up, f"{path}.up"))
            post = to.dropout(to.named(f"{path}.post"), self.dropout)
            return to.linear(f"{path}.out", post, self.down, f"{path}.down")

    def activated_steps(self, to: Steps, path: str, pre: str, up: Callable[[], str]) -> str:
        """Lists the ops of `activated`, where `up` lists those of the other map; returns the address of the result."""
        if self.curve is not None and self.gate is None:
            return self.curve.steps(to, f"{path}.curve", f"{path}.act", pre)
        if self.gate is None:
            return activation_steps(to, f"{path}.act", pre, self.activation)
        if self.clamp is None:
            act = activation_steps(to, f"{path}.act", pre, self.activation)
            return to.do(f"{path}.post", "multiply", act, up())
        alpha, limit = self.clamp.alpha, self.clamp.limit
        act = to.do(f"{path}.act.limited", "clamp", pre, by={"most": limit})
        act = to.do(f"{path}.act.times", "scale", act, by={"factor": alpha})
        act = to.do(f"{path}.act.silu", "activation", act, how="silu")
        act = to.do(f"{path}.act", "scale", act, by={"factor": 1 / alpha})
        limited = to.do(f"{path}.up.limited", "clamp", up(), by={"least": -limit, "most": limit})
        product = to.do(f"{path}.post.product", "multiply", act, limited)
        return to.do(f"{path}.post", "add", product, act)


def activation_steps(to: Steps, out: str, x: str, name: str) -> str:
    """Lists the ops of an activation function; returns `out`."""
    if name == "squared_relu":
        act = to.do(f"{out}.relu", "activation", x, how="relu")
        return to.do(out, "multiply", act, act)
    return to.do(out, "activation", x, how=name)


def _saved(call: Sized) -> tuple[Sizes, ...]:
    """Tensors that autograd saves: the result of ReLU, tanh and sigmoid, else the input; one more for two steps."""
    if call.op.how in ("quick_gelu", "fall"):
        return call.x[0], replace(call.out)
    return (call.out,) if call.op.how in ("relu", "tanh", "sigmoid") else (call.x[0],)


def _activation(call: Call) -> Tensor:
    return activation_function(call.op.how)(call.x[0])


def _clamp(call: Call) -> Tensor:
    return call.x[0].clamp(call.op.by.get("least"), call.op.by.get("most"))


KINDS |= {"activation": Kind(_activation, saves=_saved), "clamp": Kind(_clamp, saves=its_inputs)}
