"""The gated delta rule: a matrix of keys and values for each head that forgets, and that each position corrects."""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.config import GatedDelta, StackConfig
from clearhead.model.attention import Combining, by_heads
from clearhead.model.cache import State
from clearhead.model.layout import Layout
from clearhead.model.linear import narrowed
from clearhead.model.mixers.mixer import CausalConvolution, Mixer, edited_states, kept_shares, negative_exp, share
from clearhead.model.norm import RMSNorm, unit
from clearhead.model.ops import KINDS, Call, Deriving, Kind, Sized, Sizes, Steps, only_sized
from clearhead.trace import asked, tap, tell_padding, tracing

CHUNK = 64
"""Positions that are computed together."""
EPS = 1e-6

Solve = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""C, K, b and u -> C r and r, for which r + b tril(K) r = b u."""


def delta_by_steps(given: Sequence[Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
    """S_t = a_t S_{t-1} + k_t (b_t (v_t - k_t a_t S_{t-1})), y_t = q_t S_t   (Yang et al. 2025, Gated DeltaNet)

    `given` are q and k, b h t k, v, b h t j, and ln a and b, b h t. Returns y, b h t j, and S, b h k j.
    """
    q, k, v, decay, rate = given
    made: list[Tensor] = []
    for t in range(q.shape[2]):
        state = state * decay[:, :, t, None, None].exp()
        seen = (k[:, :, t, None] @ state)[:, :, 0]
        state = state + k[:, :, t, :, None] * (rate[:, :, t, None] * (v[:, :, t] - seen))[:, :, None]
        made.append((q[:, :, t, None] @ state)[:, :, 0])
    return torch.stack(made, 2), state


def _solve(match: Tensor, overlap: Tensor, rate: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    r = torch.linalg.solve_triangular((rate * overlap).tril(-1), rate * u, upper=False, unitriangular=True)
    return match @ r, r


def delta_by_chunks(
    given: Sequence[Tensor],
    state: Tensor,
    *,
    documents: Tensor | None = None,
    size: int = CHUNK,
    solve: Solve = _solve,
) -> tuple[Tensor, Tensor]:
    """The same by products of matrices, `size` positions at a time. The state of one document, b t, ends with it.

    In a chunk r, what each position adds to the state, solves r + b tril(K) r = b (v - a k S) with the state S before
    it. K is k k^T, and C = q k^T, times what is left of the one position at the other.
    """
    made, (q, k, v, decay, rate) = list[Tensor](), given
    last = None if documents is None else documents[:, :1]
    for at in range(0, q.shape[2], size):
        q_, k_, v_, decay_ = (x[:, :, at : at + size] for x in (q, k, v, decay))
        kept, total = kept_shares(decay_), decay_.cumsum(2)
        since, left, whole = share(total)[..., None], kept[:, :, -1, :, None], share(total[..., -1:, None])
        if documents is not None and last is not None:
            own = documents[:, at : at + size]
            kept = kept * (own[:, None, :, None] == own[:, None, None, :])
            since, left = since * (own == last)[:, None, :, None], left * (own == own[:, -1:])[:, None, :, None]
            whole = whole * (own == last).all(1)[:, None, None, None]
            last = own[:, -1:]
        match, overlap = (q_ @ k_.mT) * kept, (k_ @ k_.mT) * kept
        y, r = solve(match, overlap, rate[:, :, at : at + size, None], v_ - since * (k_ @ state))
        made.append(y + since * (q_ @ state))
        state = whole * state + (left * k_).mT @ r
    return torch.cat(made, 2), state


class GatedDeltaRule(Mixer, Combining, Deriving):
    """out = W_out (RMSNorm(y) * silu(W_gate x)), where y reads the state of `delta_by_steps`.

    Queries, keys and values go through a causal convolution and silu; queries and keys are of length 1, queries divided
    by sqrt(d_k). decay = -exp(log_speed) softplus(W_decay x + bias), rate = sigmoid(W_rate x).
    """

    def __init__(self, config: GatedDelta, stack: StackConfig) -> None:
        super().__init__()
        d, heads = stack.d_model, config.n_heads
        self.n_heads, self.n_key_heads = heads, config.key_heads
        self.d_key, self.d_value = config.d_key, config.d_value
        keys, values = self.n_key_heads * self.d_key, heads * self.d_value
        self.n_kept = heads * self.d_key * self.d_value + (config.width - 1) * (2 * keys + values)
        self.q, self.k = (nn.Linear(d, keys, bias=False) for _ in range(2))
        self.v, self.gate = (nn.Linear(d, values, bias=False) for _ in range(2))
        self.q_conv, self.k_conv = (CausalConvolution(keys, config.width, bias=False) for _ in range(2))
        self.v_conv = CausalConvolution(values, config.width, bias=False)
        self.decay, self.rate = nn.Linear(d, heads), nn.Linear(d, heads, bias=False)
        self.log_speed = nn.Parameter(nn.init.uniform_(torch.empty(heads), math.log(0.01), 0.0))
        self.norm = RMSNorm(self.d_value, eps=stack.norm_eps, axes="b h t k")
        self.out = nn.Linear(values, d, bias=False)

    @property
    def slope(self) -> Tensor:
        """h: decay is this times a softplus."""
        return negative_exp(self.log_speed)

    @property
    def derived(self) -> dict[str, Tensor]:
        return {"slope": self.slope}

    def forward(self, x: Tensor, layout: Layout, *, state: State | None = None, onto: Layout | None = None) -> Tensor:
        tell_padding(t=layout.valid, s=layout.valid)
        x = narrowed(x, self.q, self.k, self.v, self.gate)
        before = state.values if state is not None and state.values else (None,) * 4
        wide = torch.promote_types(x.dtype, torch.float32)
        sides, last = self.sides(x, layout, before, wide)
        decay = self.slope * F.softplus(self.decay(x).to(wide))
        decay, rate = layout.blank(layout.unpack(decay)), layout.blank(layout.unpack(self.rate(x).to(wide).sigmoid()))
        given = (*sides, tap(self, "decay", decay, "b t h").mT, tap(self, "rate", rate, "b t h").mT)
        (b, t), start, documents = layout.grid, before[3], layout.documents
        start = decay.new_zeros(b, self.n_heads, self.d_key, self.d_value) if start is None else start
        with torch.autocast(x.device.type, enabled=False):
            if tracing():
                y, s = delta_by_chunks(given, start, documents=documents, size=t, solve=self.explicit)
            elif t == 1:
                y, s = delta_by_steps(given, start)
            else:
                y, s = delta_by_chunks(given, start, documents=documents)
            if asked(self, "state") and documents is None:
                y, s = self.through_states(given, start, y)
        if state is not None:
            state.keep(*last, s)
        gate = tap(self, "gate", F.silu(by_heads(layout.unpack(self.gate(x)), self.n_heads)), "b h t k")
        y = self.norm(tap(self, "read", y, "b h t k").to(self.log_speed.dtype))
        return self.combine(y * gate, onto or layout)

    def sides(
        self, x: Tensor, layout: Layout, before: tuple[Tensor | None, ...], wide: torch.dtype
    ) -> tuple[list[Tensor], list[Tensor]]:
        """b t d (or packed m d) -> queries, keys and values, b h t k each, and what their convolutions keep."""
        made, last = list[Tensor](), list[Tensor]()
        for (name, linear, conv, heads), past in zip(self._sides, before, strict=False):
            side, kept = conv(layout.unpack(linear(x)), layout, past)
            side = by_heads(F.silu(side), heads).to(wide)
            if name != "v":
                side = unit(side, EPS).repeat_interleave(self.n_heads // heads, 1)
            side = side * self.d_key**-0.5 if name == "q" else side
            made.append(tap(self, name, side, f"b h {'t' if name == 'q' else 's'} k"))
            last.append(kept)
        return made, last

    @property
    def _sides(self) -> tuple[tuple[str, nn.Module, CausalConvolution, int], ...]:
        """Names, maps, convolutions and heads."""
        return (
            ("q", self.q, self.q_conv, self.n_key_heads),
            ("k", self.k, self.k_conv, self.n_key_heads),
            ("v", self.v, self.v_conv, self.n_heads),
        )

    def explicit(self, match: Tensor, overlap: Tensor, rate: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """`Solve` by the matrix of what each position reads of each value, as attention would."""
        lower = (rate * tap(self, "overlap", overlap, "b h t s")).tril(-1)
        eye = torch.diag_embed(rate[..., 0])
        corrections = torch.linalg.solve_triangular(lower, eye, upper=False, unitriangular=True)
        corrections = tap(self, "corrections", corrections, "b h t s")
        weights = tap(self, "weights", tap(self, "match", match, "b h t s") @ corrections, "b h t s")
        return weights @ u, corrections @ u

    def through_states(self, given: Sequence[Tensor], state: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """What is read, `y`, and the last state, after edits of the state at each position, in their order."""

        def step(t: int, state: Tensor) -> Tensor:
            return delta_by_steps([x[:, :, t : t + 1] for x in given], state)[1]

        plain, after = edited_states(self, state, step, y.shape[2])
        return y + (given[0][:, :, :, None] @ (after - plain))[..., 0, :], after[:, :, -1]

    def steps(self, to: Steps, path: str, x: str) -> str:
        with to.inside(path):
            q, k, v = (self.side_steps(to, path, x, *side) for side in self._sides)
            decay = to.linear(f"{path}.decay.linear", x, self.decay, f"{path}.decay")
            decay = to.do(f"{path}.decay.softplus", "activation", decay, how="softplus")
            decay = to.do(f"{path}.decay", "gain", decay, weights=(f"{path}.slope",))
            rate = to.linear(f"{path}.rate.linear", x, self.rate, f"{path}.rate")
            rate = to.do(f"{path}.rate", "activation", rate, how="sigmoid")
            if to.training:
                y = to.do(f"{path}.read", "delta", q, k, v, decay, rate)
            else:
                y = self.explicit_steps(to, path, (q, k, v, decay, rate))
            gate = to.linear(f"{path}.gate.linear", x, self.gate, f"{path}.gate")
            gate = to.do(f"{path}.gate.split", "split", gate, by={"heads": self.n_heads, "width": self.d_value})
            gate = to.do(f"{path}.gate", "activation", gate, how="silu")
            y = self.norm.steps(to, f"{path}.norm", y)
            return self.combine_steps(to, path, to.do(f"{path}.z", "multiply", y, gate))

    def side_steps(
        self, to: Steps, path: str, x: str, name: str, linear: nn.Module, conv: CausalConvolution, heads: int
    ) -> str:
        """Lists the ops of one of `sides`; returns the address of the result."""
        at, width = f"{path}.{name}", self.d_value if name == "v" else self.d_key
        made = conv.steps(to, f"{at}.conv", f"{at}_conv", to.linear(f"{at}.linear", x, linear, at))
        made = to.do(f"{at}.silu", "activation", made, how="silu")
        made = to.do(f"{at}.split", "split", made, by={"heads": heads, "width": width})
        if name == "v":
            return to.named(at)
        made = to.do(f"{at}.unit", "unit", made, by={"eps": EPS})
        if heads < self.n_heads:
            made = to.do(f"{at}.repeat", "repeat", made, by={"times": self.n_heads // heads})
        return to.named(at) if name == "k" else to.do(at, "scale", made, by={"factor": self.d_key**-0.5})

    def explicit_steps(self, to: Steps, path: str, given: tuple[str, str, str, str, str]) -> str:
        """Lists the ops of `explicit`, without a state before; returns the address of what is read."""
        q, k, v, decay, rate = given
        match = to.do(f"{path}.match.product", "matmul_nt", q, k)
        match = to.do(f"{path}.match", "decay", match, decay)
        overlap = to.do(f"{path}.overlap.product", "matmul_nt", k, k)
        overlap = to.do(f"{path}.overlap", "decay", overlap, decay)
        minus = to.do(f"{path}.rate.minus", "scale", rate, by={"factor": -1.0})
        taken = to.do(f"{path}.corrections.taken", "weigh", overlap, minus)
        corrections = to.do(f"{path}.corrections", "correct", taken, rate)
        weights = to.do(f"{path}.weights", "matmul", match, corrections)
        return to.do(f"{path}.read", "matmul", weights, v)


# --- kinds of op -----------------------------------------------------------------------------------------------------


def _correct(call: Call) -> Tensor:
    """T with T_ts = sum over u < t of L_tu T_us, but T_tt the rate of t. L is h t s, rates are t h."""
    taken, rate = call.x
    return torch.linalg.solve_triangular(-taken.tril(-1), torch.diag_embed(rate.mT), upper=False, unitriangular=True)


def _chunks(call: Sized) -> tuple[int, int, int, list[int]]:
    """Heads, widths of a key and of a value, and positions of each chunk."""
    (h, t, d_key), d_value = call.x[0].shape, call.x[2].shape[-1]
    return h, d_key, d_value, [min(CHUNK, t - at) for at in range(0, t, CHUNK)]


def _saved(call: Sized) -> tuple[Sizes, ...]:
    """Queries and keys; seven tables of pairs and a state for each chunk; what each position reads and adds."""
    h, k, j, sizes = _chunks(call)
    numbers = sum(7 * n * n + k * j + 1 + n * (k + 4 * j + 1) for n in sizes)
    return *call.x[:2], Sizes((h, numbers))


def _flops(call: Sized) -> int:
    h, k, j, sizes = _chunks(call)
    return 2 * h * sum(n * (2 * n * k + n * j + 3 * k * j) for n in sizes)


KINDS |= {
    "correct": Kind(_correct),
    "delta": Kind(only_sized, lambda call: call.x[2].shape, _saved, _flops, width=lambda _: 4),
}
