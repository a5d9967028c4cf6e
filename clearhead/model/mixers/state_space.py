"""A selective state space: each head keeps a matrix that decays, computed step by step or in chunks."""

from collections.abc import Callable, Sequence
from math import log

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.config import StackConfig, StateSpace
from clearhead.model.attention import by_heads
from clearhead.model.cache import State
from clearhead.model.layout import Layout
from clearhead.model.linear import narrowed
from clearhead.model.mixers.mixer import (
    CausalConvolution,
    Mixer,
    Recomputed,
    kept_shares,
    negative_exp,
    share,
    softplus_steps,
)
from clearhead.model.mode import Part
from clearhead.model.norm import PLAIN
from clearhead.model.ops import KINDS, Deriving, Kind, Sized, Steps, its_inputs, only_sized
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
        self.d_head, self.limits = config.d_head, (config.least_step, config.most_step)
        self.factors = dict(zip(("gate", "x", "b", "c", "step"), config.factors or (), strict=False))
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
        self.norm = None if config.norm is None else GroupNorm(inner, config.n_groups, eps=stack.norm_eps)
        self.norms_first = config.norm == "before_gate"
        self.out = nn.Linear(inner, d, bias=False)

    @property
    def rate(self) -> Tensor:
        """h: how fast each head forgets, in at least float32."""
        return negative_exp(self.log_rate)

    @property
    def skip_each(self) -> Tensor:
        """d: the factor of what goes past the state, for each component."""
        return self.skip.repeat_interleave(self.d_head)

    @property
    def derived(self) -> dict[str, Tensor]:
        return {"rate": self.rate, "skip_each": self.skip_each}

    def forward(self, x: Tensor, layout: Layout, *, state: State | None = None, onto: Layout | None = None) -> Tensor:
        dtype, x = x.dtype, narrowed(x, self.gate, self.x, self.b, self.c, self.step)
        before = state.values if state is not None and state.values else (None,) * 4
        values, ends = list[Tensor](), list[Tensor]()
        for name, past in zip("xbc", before, strict=False):
            value, end = self.get_submodule(f"{name}_conv")(self._mapped(name, x, layout), layout, past)
            values.append(tap(self, name, F.silu(value), "b t d"))
            ends.append(end)
        step = self._mapped("step", x, layout)
        step = F.softplus(step.to(torch.promote_types(step.dtype, torch.float32)) + self.step_bias)
        step = tap(self, "step", step if self.limits == (0.0, None) else step.clamp(*self.limits), "b t h")
        if layout.valid is not None:
            step = step * layout.valid[..., None]  # Padding writes nothing, and nothing decays there.
        decay = tap(self, "decay", step * self.rate, "b t h")
        n_heads = len(self.skip), self.n_groups, self.n_groups
        given = [by_heads(value, n) for value, n in zip(values, n_heads, strict=True)]
        given += [step.mT, decay.mT, self.skip]
        if state is None and torch.is_grad_enabled() and not (tracing() or torch.compiler.is_compiling()):
            documents = layout.documents

            def read(*given: Tensor) -> Tensor:
                return scan(given, None, documents, keep=False, chunk=CHUNK)[0]

            y = Recomputed.apply(read, *given)
        else:
            kept, documents, keep = before[3], layout.documents, state is not None
            chunk, see = (x.shape[-2], self._see) if tracing() else (CHUNK, None)
            y, kept = scan(given, kept, documents, keep=keep, chunk=chunk, see=see)
            if state is not None and kept is not None:
                state.keep(*ends, kept)
        y = tap(self, "y", y.transpose(1, 2).flatten(2), "b t d")
        gate = F.silu(tap(self, "gate", self._mapped("gate", x, layout), "b t d"))
        z = y * gate if self.norm is None else self.norm(y) * gate if self.norms_first else self.norm(y * gate)
        z = tap(self, "z", z.to(dtype), "b t d")
        return tap(self, "out", self.out((onto or layout).pack(z)), "b t d")

    def _mapped(self, name: str, x: Tensor, layout: Layout) -> Tensor:
        """b t d (or packed m d) -> b t k: what the map of this name makes, times its constant factor."""
        made = layout.unpack(self.get_submodule(name)(x))
        return made * self.factors[name] if name in self.factors else made

    def _see(self, weights: Tensor) -> Tensor:
        return tap(self, "weights", weights, "b h t s")

    def steps(self, to: Steps, path: str, x: str) -> str:
        with to.inside(path):
            values = list[str]()
            for name in "xbc":
                conv = self.get_submodule(f"{name}_conv")
                assert isinstance(conv, CausalConvolution)
                value = self._map_steps(to, f"{path}.{name}.linear", x, f"{path}.{name}")
                value = conv.steps(to, f"{path}.{name}.conv", f"{path}.{name}_conv", value)
                values.append(to.do(f"{path}.{name}", "activation", value, how="silu"))
            step = softplus_steps(to, path, x, self.step, self.factors.get("step"))
            if self.limits != (0.0, None):
                least, most = self.limits
                limits = {"least": least} if most is None else {"least": least, "most": most}
                step = to.do(f"{path}.step", "clamp", to.named(f"{path}.step.free"), by=limits)
            decay = to.do(f"{path}.decay", "gain", step, weights=(f"{path}.rate",))
            y = self._scan_steps(to, path, values, step, decay)
            gate = self._map_steps(to, f"{path}.gate", x, f"{path}.gate")
            gate = to.do(f"{path}.gate.silu", "activation", gate, how="silu")
            y = y if self.norms_first else to.do(f"{path}.gated", "multiply", y, gate)
        if self.norm is not None:
            y = self.norm.steps(to, f"{path}.norm", y)
        if self.norms_first:
            to.do("", "multiply", y, gate)
        z = to.named(f"{path}.z")
        with to.inside(path):
            return to.linear(f"{path}.out", z, self.out, f"{path}.out")

    def _map_steps(self, to: Steps, out: str, x: str, path: str) -> str:
        """Lists the ops of `_mapped`; returns `out`."""
        name = path.rpartition(".")[2]
        made = to.linear(out, x, self.get_submodule(name), path)
        if name not in self.factors:
            return made
        return to.do(out, "scale", to.named(f"{out}.plain"), by={"factor": self.factors[name]})

    def _scan_steps(self, to: Steps, path: str, values: Sequence[str], step: str, decay: str) -> str:
        """Lists the ops of `scan` as attention, or for training its sizes; returns the address of y."""
        (x, b, c), heads, groups = values, len(self.skip), self.n_groups
        if to.training:
            return to.do(f"{path}.y", "state_space", x, b, c, step, decay, by={"groups": groups})

        def split(value: str, n: int, width: int) -> str:
            return to.do(f"{value}.split", "split", value, by={"heads": n, "width": width})

        d_state = len(self.c_conv.weight) // groups
        sides = split(c, groups, d_state), split(b, groups, d_state)
        scores = to.do(f"{path}.products.shared", "matmul_nt", *sides)
        scores = to.do(f"{path}.products", "repeat", scores, by={"times": heads // groups})
        weights = to.do(f"{path}.weights", "decay", scores, decay, step)
        read = to.do(f"{path}.seen", "matmul", weights, split(x, heads, self.d_head))
        read = to.do(f"{path}.seen.merged", "merge", read, by={"width": self.d_head})
        past = to.do(f"{path}.past", "gain", x, weights=(f"{path}.skip_each",))
        return to.do(f"{path}.y", "add", read, past)


class GroupNorm(Part, Deriving):
    """x * rstd * weight, with an rstd for each group of components   (Zhang and Sennrich 2019; Dao and Gu 2024, 8.2)"""

    def __init__(self, width: int, n_groups: int, *, eps: float) -> None:
        super().__init__()
        self.n_groups, self.eps = n_groups, eps
        self.weight = nn.Parameter(torch.ones(width))

    @property
    def ones(self) -> Tensor:
        """k: the factors of a group before the weight."""
        return torch.ones(len(self.weight) // self.n_groups)

    @property
    def derived(self) -> dict[str, Tensor]:
        return {"ones": self.ones}

    def forward(self, x: Tensor) -> Tensor:
        groups = x.unflatten(-1, (self.n_groups, -1))
        return F.rms_norm(groups, groups.shape[-1:], eps=self.eps).flatten(-2) * self.weight

    def steps(self, to: Steps, path: str, x: str) -> str:
        """Lists the ops of `forward`; returns the address of the result."""
        with to.inside(path):
            width = len(self.weight) // self.n_groups
            groups = to.do(f"{path}.split", "split", x, by={"heads": self.n_groups, "width": width})
            rstd = to.do(f"{path}.spread", "rstd", groups, by={"eps": self.eps})
            normed = to.do(f"{path}.each", "norm", groups, rstd, weights=(f"{path}.ones",), how=PLAIN)
            normed = to.do(f"{path}.merged", "merge", normed, by={"width": width})
            return to.do(f"{path}.scaled", "gain", normed, weights=(f"{path}.weight",))


# --- the recurrence --------------------------------------------------------------------------------------------------


def scan(
    given: Sequence[Tensor],
    state: Tensor | None,
    documents: Tensor | None,
    *,
    keep: bool,
    chunk: int,
    see: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """x, b h t k; b and c, b g t n; step and decay, b h t; skip, h -> y, b h t k, and the last state, b h k n.

    Within a chunk it is attention, which is quick: y = weights x + skip x. `see` gets the weights, b h t s, and returns
    those to use. With chunks of one position it is the recurrence. The numbers are at least float32. Each of the
    `documents`, b t, begins with a state of zeros. The state is that before the last chunk unless `keep` is set.
    """
    x, b, c, step, decay, skip = given
    wide = torch.promote_types(x.dtype, torch.float32)
    t, each, made = x.shape[2], (b.shape[1], x.shape[1] // b.shape[1]), list[Tensor]()
    with torch.autocast(x.device.type, enabled=False):
        x, b, c = x.to(wide), b.to(wide), c.to(wide)
        v = x * step[..., None]
        if t == 1 and state is not None and not tracing():  # A step of the recurrence.
            b, c = (shared.repeat_interleave(each[1], 1) for shared in (b, c))
            state = torch.addcmul(state * decay[..., None].exp(), v.mT, b)
            return c @ state.mT + x * skip[:, None, None], state
        for start in range(0, t, chunk):
            own = slice(start, start + chunk)
            kept, reads = kept_shares(decay[:, :, own]), share(decay[:, :, own].cumsum(-1))
            if documents is not None:
                now, last = documents[:, None, own], documents[:, None, max(start - 1, 0), None]
                kept, reads = kept * (now[..., None] == now[..., None, :]), reads * (now == last)
            weights = (c[:, :, own] @ b[:, :, own].mT).repeat_interleave(each[1], 1) * kept
            y = see(weights * step[:, :, None, own]) @ x[:, :, own] if see else weights @ v[:, :, own]
            if state is not None:
                seen = c[:, :, own] @ state.unflatten(1, each).flatten(2, 3).mT
                y = y + seen.unflatten(-1, (each[1], -1)).transpose(2, 3).flatten(1, 2) * reads[..., None]
            made.append(y)
            if keep or start + chunk < t:
                written = (v[:, :, own] * kept[:, :, -1, :, None]).unflatten(1, each).transpose(2, 3).flatten(3)
                written = (written.mT @ b[:, :, own]).unflatten(2, (each[1], -1)).flatten(1, 2)
                state = written if state is None else state * reads[..., -1:, None] + written
        return torch.cat(made, 2) + x * skip[:, None, None], state


# --- kinds of op -----------------------------------------------------------------------------------------------------


def _scan_flops(call: Sized) -> int:
    """Products within chunks, of states with what reads them, and of what is written to them."""
    (t, width), shared, groups = call.x[0].shape, call.x[1].shape[1], int(call.op.by["groups"])
    sizes = [min(CHUNK, t - start) for start in range(0, t, CHUNK)]
    within = sum(size * size for size in sizes) * (shared + width)
    return 2 * within + 2 * width * (shared // groups) * (2 * t - sizes[0] - sizes[-1])


KINDS |= {
    "state_space": Kind(only_sized, saves=its_inputs, flops=_scan_flops, width=lambda _: 4),
}
