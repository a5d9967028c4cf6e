"""The selective scan of Mamba: each channel keeps numbers that decay at rates of their own."""

from math import isqrt, log
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.config import SelectiveScan, StackConfig
from clearhead.model.cache import State
from clearhead.model.layout import Layout
from clearhead.model.linear import narrowed
from clearhead.model.mixers.mixer import (
    CausalConvolution,
    Mixer,
    Recomputed,
    kept_shares,
    negative_exp,
    softplus_steps,
    weights_change,
)
from clearhead.model.norm import RMSNorm
from clearhead.model.ops import KINDS, Call, Deriving, Kind, Sized, Steps, its_inputs, only_sized, parameters
from clearhead.trace import asked, tap, tracing


class ChannelStates(Mixer, Deriving):
    """S_t = exp(rate * step_t) S_{t-1} + step_t x_t b_t^T,   y_t = S_t c_t + skip * x_t,   out = W_out(y silu(gate))

    Gu and Dao 2023, Mamba. x is silu(conv(W x)), and from it come b, c and step = softplus(W_step W_low x + bias). The
    rates, d n, are negative: one for each number of a channel's state, where Mamba-2 has one for each head.
    """

    def __init__(self, config: SelectiveScan, stack: StackConfig) -> None:
        super().__init__()
        inner, n, rank = config.d_inner, config.d_state, config.rank
        self.n_kept = (config.width - 1) * inner + inner * n
        self.x, self.gate = (nn.Linear(stack.d_model, inner, bias=False) for _ in range(2))
        self.x_conv = CausalConvolution(inner, config.width, bias=config.conv_bias)
        self.low, self.b, self.c = (nn.Linear(inner, width, bias=False) for width in (rank, n, n))
        self.low_norm, self.b_norm, self.c_norm = (
            None if config.norms is None else RMSNorm(width, eps=config.norms_eps, by=config.norms)
            for width in (rank, n, n)
        )
        self.step = nn.Linear(rank, inner, bias=False)
        # Steps from 0.001 to 0.1 and rates from -1 to -n, as in the paper.
        self.step_bias = nn.Parameter(nn.init.uniform_(torch.empty(inner), log(0.001), log(0.1)))
        self.log_rate = nn.Parameter(torch.arange(1.0, n + 1).log().repeat(inner, 1))
        self.skip = nn.Parameter(torch.ones(inner))
        self.out = nn.Linear(inner, stack.d_model, bias=False)

    @property
    def rate(self) -> Tensor:
        """d n: how fast each number of a state is forgotten, in at least float32."""
        return negative_exp(self.log_rate)

    @property
    def derived(self) -> dict[str, Tensor]:
        return {"rate": self.rate}

    def forward(self, x: Tensor, layout: Layout, *, state: State | None = None, onto: Layout | None = None) -> Tensor:
        dtype, x = x.dtype, narrowed(x, self.x, self.gate)
        before = state.values if state is not None and state.values else (None, None)
        value, end = self.x_conv(layout.unpack(self.x(x)), layout, before[0])
        value = tap(self, "x", F.silu(value).contiguous(), "b t d")  # Three maps read it.
        b, c = tap(self, "b", self._made("b", value), "b t d"), tap(self, "c", self._made("c", value), "b t d")
        step = self.step(self._made("low", value))
        step = F.softplus(step.to(torch.promote_types(step.dtype, torch.float32)) + self.step_bias)
        step = tap(self, "step", step, "b t h")
        if layout.valid is not None:
            step = step * layout.valid[..., None]  # Padding writes nothing, and nothing decays there.
        documents, given = layout.documents, (value.to(step.dtype), step, b.to(step.dtype), c.to(step.dtype))
        with torch.autocast(x.device.type, enabled=False):
            if state is None and torch.is_grad_enabled() and not (tracing() or torch.compiler.is_compiling()):

                def read(*given: Tensor) -> Tensor:
                    return scan((*given[:4], negative_exp(given[4])), None, documents)[0]

                y = Recomputed.apply(read, *given, self.log_rate)
            else:
                y, last = scan((*given, self.rate), before[1], documents)
                if state is not None:
                    state.keep(end, last)
            if asked(self, "weights"):
                weights = implied_weights(given[3], given[2], step, self.rate)
                y = y + weights_change(self, weights, given[0], documents)
            y = y + given[0] * self.skip
        y = tap(self, "y", y, "b t d")
        gate = tap(self, "gate", layout.unpack(self.gate(x)), "b t d")
        z = tap(self, "z", (y * F.silu(gate)).to(dtype), "b t d")
        return tap(self, "out", self.out((onto or layout).pack(z)), "b t d")

    def _made(self, name: Literal["low", "b", "c"], x: Tensor) -> Tensor:
        """b t d -> b t k: what the map of this name makes, normalised where the config says so."""
        made, norm = self.get_submodule(name)(x), getattr(self, f"{name}_norm")
        return made if norm is None else norm(made)

    def steps(self, to: Steps, path: str, x: str) -> str:
        with to.inside(path):
            value = to.linear(f"{path}.x.linear", x, self.x, f"{path}.x")
            value = self.x_conv.steps(to, f"{path}.x.conv", f"{path}.x_conv", value)
            value = to.do(f"{path}.x", "activation", value, how="silu")
            low, b, c = (self._made_steps(to, path, name, value) for name in ("low", "b", "c"))
            step = softplus_steps(to, path, low, self.step)
            rate, channels = (f"{path}.rate",), {"heads": float(len(self.skip))}
            if to.training:
                y = to.do(f"{path}.seen", "selective_scan", value, b, c, step, weights=rate)
            else:
                weights = to.do(f"{path}.weights", "implied_weights", c, b, step, weights=rate, by=channels)
                each = to.do(f"{path}.x.split", "split", value, by={**channels, "width": 1})
                each = to.do(f"{path}.seen.split", "matmul", weights, each)
                y = to.do(f"{path}.seen", "merge", each, by={"width": 1})
            y = to.do(f"{path}.y", "add", y, to.do(f"{path}.past", "gain", value, weights=(f"{path}.skip",)))
            gate = to.linear(f"{path}.gate", x, self.gate, f"{path}.gate")
            z = to.do(f"{path}.z", "multiply", y, to.do(f"{path}.gate.silu", "activation", gate, how="silu"))
            return to.linear(f"{path}.out", z, self.out, f"{path}.out")

    def _made_steps(self, to: Steps, path: str, name: Literal["low", "b", "c"], x: str) -> str:
        """Lists the ops of `_made`; returns the address of the result."""
        out, norm, linear = f"{path}.{name}", getattr(self, f"{name}_norm"), getattr(self, name)
        if norm is None:
            return to.linear(out, x, linear, out)
        width = {"width": float(linear.out_features)}
        made = to.do(f"{out}.linear", "linear", x, weights=parameters(linear, out), by=width)
        return to.do(out, "copy", norm.steps(to, f"{out}_norm", made))


# --- the recurrence --------------------------------------------------------------------------------------------------


def scan(
    given: tuple[Tensor, ...], state: Tensor | None, documents: Tensor | None, *, size: int | None = None
) -> tuple[Tensor, Tensor]:
    """x and step, b t d; b and c, b t n; rate, d n -> y, b t d, without what skips the state, and the last, b d n.

    Chunks of `size` positions, by default about sqrt(t), advance side by side from states of zeros. What each chunk
    begins with then follows from chunk to chunk. With `size` 1 it is the recurrence. Each of the `documents`, b t,
    begins with zeros.
    """
    x, step, b, c, rate = given
    t, size = x.shape[1], size or max(1, isqrt(x.shape[1]))
    decay, written = (step[..., None] * rate).exp(), (step * x)[..., None] * b[:, :, None]
    if documents is not None:
        same = F.pad(documents[:, 1:] == documents[:, :-1], (1, 0), value=True)
        decay = decay * same[..., None, None]
    missing = -t % size
    decay, written, c = (
        F.pad(one, (0,) * (2 * one.ndim - 3) + (missing,), value=fill).unflatten(1, (-1, size)).unbind(2)
        for one, fill in ((decay, 1.0), (written, 0.0), (c, 0.0))
    )
    local, kept = written[0], decay[0]
    locals_, kepts = [local], [kept]
    for forgets, adds in zip(decay[1:], written[1:], strict=True):
        local, kept = forgets * local + adds, forgets * kept
        locals_.append(local)
        kepts.append(kept)
    state, begins = x.new_zeros(local[:, 0].shape) if state is None else state, list[Tensor]()
    for own, left in zip(local.unbind(1), kept.unbind(1), strict=True):
        begins.append(state)
        state = left * state + own
    first = torch.stack(begins, 1)
    reads = [((own + left * first) @ at[..., None])[..., 0] for own, left, at in zip(locals_, kepts, c, strict=True)]
    return torch.stack(reads, 2).flatten(1, 2)[:, :t], state


def implied_weights(c: Tensor, b: Tensor, step: Tensor, rate: Tensor) -> Tensor:
    """c and b, ... t n; step, ... t d; rate, d n -> ... d t s: the attention that each channel pays to s at t.

    step_sd sum_n c_tn b_sn exp(rate_dn (step_{s+1,d} + ... + step_td))   (Ali et al. 2024)
    """
    total = step.new_zeros(())
    for read, write, own in zip(c.unbind(-1), b.unbind(-1), rate.unbind(-1), strict=True):
        products = (read[..., :, None] * write[..., None, :]).unsqueeze(-3)
        total = total + products * kept_shares(step.mT * own[:, None])
    return total * step.mT[..., None, :]


# --- kinds of op -----------------------------------------------------------------------------------------------------


def _implied(call: Call) -> Tensor:
    c, b, step = call.x
    return implied_weights(c, b, step, call.w[0])


def _channels(call: Sized) -> tuple[int, ...]:
    t, d = call.x[2].shape
    return d, t, t


def _flops(call: Sized) -> int:
    (t, d), n = call.x[0].shape, call.x[1].shape[1]
    return 2 * (t + -t % isqrt(t)) * d * n  # The last chunk is filled up.


KINDS |= {
    "implied_weights": Kind(_implied, _channels),
    "selective_scan": Kind(only_sized, saves=its_inputs, flops=_flops, width=lambda _: 4),
}
