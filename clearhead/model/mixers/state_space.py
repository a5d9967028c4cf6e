"""A selective state space: each head keeps a matrix that decays, computed step by step or in chunks."""

from collections.abc import Callable, Sequence
from math import log
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.config import StackConfig, StateSpace
from clearhead.model.attention import by_heads
from clearhead.model.cache import State
from clearhead.model.layout import Layout
from clearhead.model.linear import narrowed
from clearhead.model.mixers.mixer import CausalConvolution, Mixer
from clearhead.model.mode import Part
from clearhead.model.ops import KINDS, Call, Deriving, Kind, Sized, Steps, its_inputs, one_more, only_sized
from clearhead.trace import tap, tracing

CHUNK = 64
"""Positions that are computed together, as in attention. A state goes from one chunk to the next."""


class SelectiveStateSpace(Mixer, Deriving):
    """S_t = exp(rate step_t) S_{t-1} + step_t x_t b_t^T,   y_t = S_t c_t + skip x_t,   out = W_out Norm(y silu(gate))

    Dao and Gu 2024, Mamba-2. x, b and c are silu(conv(W x)), the step is softplus(W x + bias), the rate is negative.
    """

    def __init__(self, config: StateSpace, stack: StackConfig) -> None:
        super().__init__()
        d, heads, self.n_groups = stack.d_model, config.n_heads, config.n_groups
        inner, shared = heads * config.d_head, config.n_groups * config.d_state
        self.limits = config.least_step, config.most_step
        self.n_kept = (config.width - 1) * (inner + 2 * shared) + inner * config.d_state
        self.gate, self.x, self.b, self.c, self.step = (
            nn.Linear(d, width, bias=False) for width in (inner, inner, shared, shared, heads)
        )
        self.x_conv, self.b_conv, self.c_conv = (
            CausalConvolution(width, config.width, bias=config.conv_bias) for width in (inner, shared, shared)
        )
        # Steps from 0.001 to 0.1 and rates from -1 to -16, as in the paper.
        self.step_bias = nn.Parameter(nn.init.uniform_(torch.empty(heads), log(0.001), log(0.1)))
        self.log_rate = nn.Parameter(nn.init.uniform_(torch.empty(heads), 0.0, log(16.0)))
        self.skip = nn.Parameter(torch.ones(heads))
        self.norm = GroupNorm(inner, config.n_groups, eps=stack.norm_eps)
        self.out = nn.Linear(inner, d, bias=False)

    @property
    def rate(self) -> Tensor:
        """h: how fast each head forgets, in at least float32."""
        return -self.log_rate.to(torch.promote_types(self.log_rate.dtype, torch.float32)).exp()

    @property
    def skip_each(self) -> Tensor:
        """h 1 1: the factor of what goes past the state."""
        return self.skip[:, None, None]

    @property
    def derived(self) -> dict[str, Tensor]:
        return {"rate": self.rate, "skip_each": self.skip_each}

    def forward(self, x: Tensor, layout: Layout, *, state: State | None = None, onto: Layout | None = None) -> Tensor:
        dtype, x = x.dtype, narrowed(x, self.gate, self.x, self.b, self.c, self.step)
        before = state.values if state is not None and state.values else (None,) * 4
        values, ends = list[Tensor](), list[Tensor]()
        for name, past in zip("xbc", before, strict=False):
            value = layout.unpack(self.get_submodule(name)(x))
            value, end = self.get_submodule(f"{name}_conv")(value, layout, past)
            values.append(tap(self, name, F.silu(value), "b t d"))
            ends.append(end)
        step = layout.unpack(self.step(x))
        step = F.softplus(step.to(torch.promote_types(step.dtype, torch.float32)) + self.step_bias)
        step = tap(self, "step", step if self.limits == (0.0, None) else step.clamp(*self.limits), "b t h")
        if layout.valid is not None:
            step = step * layout.valid[..., None]  # Padding writes nothing, and nothing decays there.
        decay = tap(self, "decay", step * self.rate, "b t h")
        n_heads = len(self.skip), self.n_groups, self.n_groups
        given = [by_heads(value, n) for value, n in zip(values, n_heads, strict=True)]
        given += [step.mT, decay.mT, self.skip]
        if state is None and torch.is_grad_enabled() and not (tracing() or torch.compiler.is_compiling()):
            y = _Scan.apply(layout.documents, *given)
        else:
            kept, documents, keep = before[3], layout.documents, state is not None
            chunk = x.shape[-2] if tracing() else CHUNK
            y, kept = scan(given, kept, documents, keep=keep, chunk=chunk, see=self._see)
            if state is not None and kept is not None:
                state.values = *ends, kept
        y = tap(self, "y", y.transpose(1, 2).flatten(2), "b t d")
        gate = tap(self, "gate", layout.unpack(self.gate(x)), "b t d")
        z = tap(self, "z", self.norm(y * F.silu(gate)).to(dtype), "b t d")
        return tap(self, "out", self.out((onto or layout).pack(z)), "b t d")

    def _see(self, weights: Tensor) -> Tensor:
        return tap(self, "weights", weights, "b h t s")

    def steps(self, to: Steps, path: str, x: str) -> str:
        with to.inside(path):
            values = list[str]()
            for name in "xbc":
                conv = self.get_submodule(f"{name}_conv")
                assert isinstance(conv, CausalConvolution)
                value = to.linear(f"{path}.{name}.linear", x, self.get_submodule(name), f"{path}.{name}")
                value = conv.steps(to, f"{path}.{name}.conv", f"{path}.{name}_conv", value)
                values.append(to.do(f"{path}.{name}", "activation", value, how="silu"))
            step = to.linear(f"{path}.step.linear", x, self.step, f"{path}.step")
            step = to.do(f"{path}.step", "softplus", step, weights=(f"{path}.step_bias",))
            if self.limits != (0.0, None):
                least, most = self.limits
                limits = {"least": least} if most is None else {"least": least, "most": most}
                step = to.do(f"{path}.step", "clamp", to.named(f"{path}.step.free"), by=limits)
            decay = to.do(f"{path}.decay", "gain", step, weights=(f"{path}.rate",))
            y = self._scan_steps(to, path, values, step, decay)
            gate = to.linear(f"{path}.gate", x, self.gate, f"{path}.gate")
            gated = to.do(f"{path}.gated", "multiply", y, to.do(f"{path}.gate.silu", "activation", gate, how="silu"))
        z = to.do(f"{path}.z", "merge", self.norm.steps(to, f"{path}.norm", gated))
        with to.inside(path):
            return to.linear(f"{path}.out", z, self.out, f"{path}.out")

    def _scan_steps(self, to: Steps, path: str, values: Sequence[str], step: str, decay: str) -> str:
        """Lists the ops of `scan` as attention, or for training its sizes; returns the address of y."""
        (x, b, c), heads, groups = values, len(self.skip), self.n_groups
        if to.training:
            return to.do(f"{path}.y", "state_space", x, b, c, step, decay, by={"groups": groups})

        def split(value: str, n: int) -> str:
            return to.do(f"{value}.split", "split", value, by={"heads": n})

        scores = to.do(f"{path}.products.shared", "matmul_nt", split(c, groups), split(b, groups))
        scores = to.do(f"{path}.products", "repeat", scores, by={"times": heads // groups})
        weights = to.do(f"{path}.weights", "decay", scores, decay)
        each = split(x, heads)
        read = to.do(f"{path}.read", "matmul", weights, to.do(f"{path}.written", "weigh", each, step))
        past = to.do(f"{path}.past", "gain", each, weights=(f"{path}.skip_each",))
        return to.do(f"{path}.y", "merge", to.do(f"{path}.y.heads", "add", read, past))


class GroupNorm(Part, Deriving):
    """x * rstd * weight, with an rstd for each group of components   (Zhang and Sennrich 2019; Dao and Gu 2024, 8.2)"""

    def __init__(self, width: int, n_groups: int, *, eps: float) -> None:
        super().__init__()
        self.n_groups, self.eps = n_groups, eps
        self.weight = nn.Parameter(torch.ones(width))

    @property
    def gain(self) -> Tensor:
        """g 1 k: the factors of each group."""
        return self.weight.view(self.n_groups, 1, -1)

    @property
    def derived(self) -> dict[str, Tensor]:
        return {"gain": self.gain}

    def forward(self, x: Tensor) -> Tensor:
        groups = x.unflatten(-1, (self.n_groups, -1))
        return F.rms_norm(groups, groups.shape[-1:], eps=self.eps).flatten(-2) * self.weight

    def steps(self, to: Steps, path: str, x: str) -> str:
        """Lists the ops of `forward` up to the groups, g t k; returns the address of the result."""
        with to.inside(path):
            groups = to.do(f"{path}.groups", "split", x, by={"heads": self.n_groups})
            rstd = to.do(f"{path}.rstd", "rstd", groups, by={"eps": self.eps})
            return to.do(f"{path}.out", "norm", groups, rstd, weights=(f"{path}.gain",))


# --- the recurrence --------------------------------------------------------------------------------------------------


def scan(
    given: Sequence[Tensor],
    state: Tensor | None,
    documents: Tensor | None,
    *,
    keep: bool,
    chunk: int,
    see: Callable[[Tensor], Tensor] = lambda weights: weights,
) -> tuple[Tensor, Tensor | None]:
    """x, b h t k; b and c, b g t n; step and decay, b h t; skip, h -> y, b h t k, and the last state, b h k n.

    Within a chunk it is attention with the weights that `see` gets, which is quick; with chunks of one position it is
    the recurrence. The numbers are at least float32. Each of the `documents`, b t, begins with a state of zeros. The
    state is that before the last chunk unless `keep` is set.
    """
    x, b, c, step, decay, skip = given
    wide = torch.promote_types(x.dtype, torch.float32)
    t, each, made = x.shape[2], (b.shape[1], x.shape[1] // b.shape[1]), list[Tensor]()
    with torch.autocast(x.device.type, enabled=False):
        x, b, c = x.to(wide), b.to(wide), c.to(wide)
        v = x * step[..., None]
        if t == 1 and state is not None and not tracing():  # A step of the recurrence.
            b, c = (shared.repeat_interleave(each[1], 1) for shared in (b, c))
            state = state * decay[..., None].exp() + v.mT @ b
            return c @ state.mT + x * skip[:, None, None], state
        for start in range(0, t, chunk):
            own = slice(start, start + chunk)
            total = decay[:, :, own].cumsum(-1)
            reads, left, same = total, total[..., -1:] - total, None
            if documents is not None:
                now, last = documents[:, None, own], documents[:, None, max(start - 1, 0), None]
                reads, left = (
                    reads.masked_fill(now != last, -torch.inf),
                    left.masked_fill(now != now[..., -1:], -torch.inf),
                )
                same = now[..., None] == now[..., None, :]
            weights = (c[:, :, own] @ b[:, :, own].mT).repeat_interleave(each[1], 1) * decays(total, same)
            y = see(weights) @ v[:, :, own]
            if state is not None:
                seen = c[:, :, own] @ state.unflatten(1, each).flatten(2, 3).mT
                y = y + seen.unflatten(-1, (each[1], -1)).transpose(2, 3).flatten(1, 2) * reads.exp()[..., None]
            made.append(y)
            if keep or start + chunk < t:
                written = (v[:, :, own] * left.exp()[..., None]).unflatten(1, each).transpose(2, 3).flatten(3)
                written = (written.mT @ b[:, :, own]).unflatten(2, (each[1], -1)).flatten(1, 2)
                state = written if state is None else state * reads[..., -1:, None].exp() + written
        return torch.cat(made, 2) + x * skip[:, None, None], state


def decays(total: Tensor, same: Tensor | None) -> Tensor:
    """Sums of decays up to each position, ... t -> what is left at t of what s wrote, ... t s: 0 for later ones."""
    t = total.shape[-1]
    is_open = torch.ones(t, t, dtype=torch.bool, device=total.device).tril()
    between = total[..., :, None] - total[..., None, :]
    return between.masked_fill(~(is_open if same is None else is_open & same), -torch.inf).exp()


class _Scan(torch.autograd.Function):
    """`scan` of whole texts, of which autograd keeps the inputs alone: the backward pass computes chunks again."""

    @staticmethod
    def forward(ctx: Any, documents: Tensor | None, *given: Tensor) -> Tensor:  # pyrefly: ignore[bad-override]
        ctx.save_for_backward(documents, *given)
        return scan(given, None, documents, keep=False, chunk=CHUNK)[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        documents, *given = ctx.saved_tensors
        given = [value.detach().requires_grad_() for value in given]
        with torch.enable_grad():
            y, _ = scan(given, None, documents, keep=False, chunk=CHUNK)
        return None, *torch.autograd.grad(y, given, gradients)


# --- kinds of op -----------------------------------------------------------------------------------------------------


def _scan_flops(call: Sized) -> int:
    """Products within chunks, of states with what reads them, and of what is written to them."""
    (t, width), shared, groups = call.x[0].shape, call.x[1].shape[1], int(call.op.by["groups"])
    sizes = [min(CHUNK, t - start) for start in range(0, t, CHUNK)]
    within = sum(size * size for size in sizes) * (shared + width)
    return 2 * within + 2 * width * (shared // groups) * (2 * t - sizes[0] - sizes[-1])


def _merge(call: Call) -> Tensor:
    return call.x[0].transpose(0, 1).flatten(1)


def _merged(call: Sized) -> tuple[int, ...]:
    heads, t, k = call.x[0].shape
    return t, heads * k


KINDS |= {
    "softplus": Kind(lambda call: F.softplus(call.x[0] + call.w[0]), saves=one_more, width=lambda _: 4),
    "decay": Kind(lambda call: call.x[0] * decays(call.x[1].mT.cumsum(-1), None)),
    "merge": Kind(_merge, _merged),
    "state_space": Kind(only_sized, saves=its_inputs, flops=_scan_flops, width=lambda _: 4),
}
