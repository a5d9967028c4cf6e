"""A gated short convolution."""

from torch import Tensor, nn

from clearhead.config import ShortConvolution, StackConfig
from clearhead.model.cache import State
from clearhead.model.layout import Layout
from clearhead.model.mixers.mixer import CausalConvolution, Mixer
from clearhead.model.ops import Steps
from clearhead.trace import tap


class GatedConvolution(Mixer):
    """out = W_out (W_out_gate x * conv(W_in_gate x * W_value x))   (Liquid AI 2025, LFM2)"""

    def __init__(self, config: ShortConvolution, stack: StackConfig) -> None:
        super().__init__()
        d = stack.d_model
        self.n_kept = (config.width - 1) * d
        self.in_gate, self.value, self.out_gate, self.out = (nn.Linear(d, d, bias=config.bias) for _ in range(4))
        self.conv = CausalConvolution(d, config.width, bias=config.bias)

    def forward(self, x: Tensor, layout: Layout, *, state: State | None = None, onto: Layout | None = None) -> Tensor:
        gate = layout.unpack(self.out_gate(x))
        made = tap(self, "input", layout.unpack(self.in_gate(x) * self.value(x)), "b t d")
        made, last = self.conv(made, layout, state.values[0] if state is not None and state.values else None)
        if state is not None:
            state.keep(last)
        z = tap(self, "z", gate * tap(self, "conv", made, "b t d"), "b t d")
        return tap(self, "out", self.out((onto or layout).pack(z)), "b t d")

    def steps(self, to: Steps, path: str, x: str) -> str:
        with to.inside(path):
            gates = (
                to.linear(f"{path}.{name}", x, getattr(self, name), f"{path}.{name}") for name in ("in_gate", "value")
            )
            made = to.do(f"{path}.input", "multiply", *gates)
            made = self.conv.steps(to, f"{path}.conv", f"{path}.conv", made)
            gate = to.linear(f"{path}.out_gate", x, self.out_gate, f"{path}.out_gate")
            return to.linear(f"{path}.out", to.do(f"{path}.z", "multiply", gate, made), self.out, f"{path}.out")
