"""RWKV: each channel keeps a mean of values, weighed by keys and ages. The feed-forward part has a state too."""

from collections.abc import Sequence
from math import log

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.config import StackConfig, TimeMixing
from clearhead.model.cache import State
from clearhead.model.fast.dropout import dropout
from clearhead.model.feedforward import activation_function, activation_steps
from clearhead.model.layout import Layout
from clearhead.model.mixers.mixer import (
    Mixer,
    Recomputed,
    TokenShift,
    decays,
    edited_states,
    negative_exp,
    weights_change,
)
from clearhead.model.ops import KINDS, Call, Deriving, Kind, Sized, Steps, its_inputs, only_sized
from clearhead.trace import asked, tap, tell_padding, tracing

NEVER = -1e30
"""The log of no weight. It is finite, because infinite ones have no difference."""
N_KEPT = 3
"""Tensors that time mixing keeps. Channel mixing keeps one, after them if a layer has both."""


class AgeingMean(Mixer, Deriving):
    """y_t = (a_{t-1} + e^(bonus + k_t) v_t) / (b_{t-1} + e^(bonus + k_t)),   out = W_out (sigmoid(W_gate x) y)

    a_t = e^rate a_{t-1} + e^(k_t) v_t, and b_t is the same without v (Peng et al. 2023, RWKV). The cache holds ln b and
    a / b, which stay moderate. The maps read `TokenShift`s of x, and rates are negative.
    """

    def __init__(self, config: TimeMixing, stack: StackConfig) -> None:
        super().__init__()
        d, inner = stack.d_model, config.d_inner or stack.d_model
        self.n_kept = d + 2 * inner
        self.key_shift, self.value_shift, self.gate_shift = (TokenShift(d) for _ in range(3))
        self.key, self.value, self.gate = (nn.Linear(d, inner, bias=False) for _ in range(3))
        self.log_rate = nn.Parameter(torch.linspace(-5.0, 3.0, inner))
        self.bonus = nn.Parameter(torch.full((inner,), log(0.3)))
        self.out = nn.Linear(inner, d, bias=False)

    @property
    def rate(self) -> Tensor:
        """d: what each position adds to the logs of the weights, in at least float32."""
        return negative_exp(self.log_rate)

    @property
    def derived(self) -> dict[str, Tensor]:
        return {"rate": self.rate}

    def forward(self, x: Tensor, layout: Layout, *, state: State | None = None, onto: Layout | None = None) -> Tensor:
        tell_padding(t=layout.valid, s=layout.valid)
        before = () if state is None else state.values
        made, last = _mapped(self, ("key", "value", "gate"), x, layout, before, layout)
        key, value, gate = (layout.unpack(one) for one in made)
        key, value = tap(self, "k", key, "b s k"), tap(self, "v", value, "b s k")
        wide = torch.promote_types(key.dtype, torch.float32)
        given = key.to(wide), value.to(wide), self.log_rate, self.bonus
        with torch.autocast(x.device.type, enabled=False):
            if state is None and torch.is_grad_enabled() and not (tracing() or torch.compiler.is_compiling()):

                def read(*given: Tensor) -> Tensor:
                    return wkv(_aged(given, layout), (), layout.documents)[0]

                y = Recomputed.apply(read, *given)
            else:
                given = _aged(given, layout)
                y, past, *ends = wkv(given, before[1:N_KEPT], layout.documents)
                if asked(self, "weights"):
                    total = torch.logaddexp(past, given[0] + self.bonus)
                    plain = log_weights(given[0], *given[2:]) - total.mT[..., None]
                    later = torch.ones_like(plain[0, 0], dtype=torch.bool).triu(1)
                    plain = plain.masked_fill(later, -torch.inf).exp()
                    y = y + weights_change(self, plain, given[1], layout.documents)
                if asked(self, "state") and layout.documents is None:
                    y, ends = self.through_states(given, before[1:N_KEPT], y, ends)
                if state is not None:
                    state.keep(last, *ends, *state.values[N_KEPT:])
        gate = tap(self, "gate", gate.sigmoid(), "b t d")
        z = tap(self, "z", (gate * tap(self, "y", y, "b t d")).to(x.dtype), "b t d")
        return tap(self, "out", self.out((onto or layout).pack(z)), "b t d")

    def through_states(
        self, given: Sequence[Tensor], first: Sequence[Tensor], y: Tensor, ends: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """What is read and kept after edits of the states, a and b of each channel."""
        key, value, decay, bonus = given
        added = torch.stack([key.exp() * value, key.exp()], -1)

        def step(t: int, state: Tensor) -> Tensor:
            return decay[:, t, :, None].exp() * state + added[:, t]

        start = torch.zeros_like(added[:, 0])
        if first:
            start = torch.stack([first[0].exp() * first[1], first[0].exp()], -1)
        plain, after = edited_states(self, start, step, key.shape[1])
        if torch.equal(plain, after):
            return y, ends
        a, b = torch.cat([start[:, :, None], after], 2).transpose(1, 2).unbind(-1)
        b = b.clamp(min=torch.finfo(b.dtype).tiny)
        weight, mean = b.log(), a / b
        y = mean[:, :-1].lerp(value, (bonus + key - weight[:, :-1]).sigmoid())
        return y, [weight[:, -1], mean[:, -1]]

    def steps(self, to: Steps, path: str, x: str) -> str:
        with to.inside(path):
            key, value, gate = (
                _mapped_steps(to, self, path, name, x, f"{path}.{at}")
                for name, at in (("key", "k"), ("value", "v"), ("gate", "gate.linear"))
            )
            weights = f"{path}.rate", f"{path}.bonus"
            if to.training:
                y = to.do(f"{path}.y", "wkv", key, value, weights=weights)
            else:
                channels = {"heads": float(len(self.bonus))}
                seen = to.do(f"{path}.products", "ageing_scores", key, weights=weights, by=channels)
                seen = to.do(f"{path}.products.masked", "mask", seen, how=f"{path.partition('.')[0]}.attn")
                seen = to.do(f"{path}.weights", "softmax", seen)
                value = to.do(f"{path}.v.split", "split", value, by={**channels, "width": 1})
                y = to.do(f"{path}.seen.split", "matmul", seen, value)
                y = to.do(f"{path}.y", "merge", y, by={"width": 1})
            gate = to.do(f"{path}.gate", "activation", gate, how="sigmoid")
            return to.linear(f"{path}.out", to.do(f"{path}.z", "multiply", gate, y), self.out, f"{path}.out")


class ChannelMixing(Mixer):
    """sigmoid(W_gate x) down(act(up(x))), whose first maps read `TokenShift`s of x   (Peng et al. 2023, RWKV)"""

    def __init__(self, stack: StackConfig) -> None:
        super().__init__()
        self.n_kept = d = stack.d_model
        self.activation, self.dropout = stack.activation, stack.ffn_dropout
        self.up_shift, self.gate_shift = TokenShift(d), TokenShift(d)
        self.up, self.gate = nn.Linear(d, stack.d_ff, bias=stack.has_ffn_bias), nn.Linear(d, d, bias=False)
        self.down = nn.Linear(stack.d_ff, d, bias=stack.has_down_bias)

    def forward(self, x: Tensor, layout: Layout, *, state: State | None = None, onto: Layout | None = None) -> Tensor:
        kept = () if state is None else state.values
        n = len(kept) // N_KEPT * N_KEPT
        (pre, gate), last = _mapped(self, ("up", "gate"), x, layout, kept[n:], onto or layout)
        if state is not None:
            state.keep(*kept[:n], last)
        pre = tap(self, "pre", pre, "b t f")
        post = tap(self, "post", activation_function(self.activation)(pre), "b t f")
        gate = tap(self, "gate", gate.sigmoid(), "b t d")
        return tap(self, "out", gate * self.down(dropout(post, self.dropout, self.training)), "b t d")

    def steps(self, to: Steps, path: str, x: str) -> str:
        with to.inside(path):
            pre = _mapped_steps(to, self, path, "up", x, f"{path}.pre")
            post = activation_steps(to, f"{path}.post", pre, self.activation)
            post = to.dropout(post, self.dropout)
            gate = _mapped_steps(to, self, path, "gate", x, f"{path}.gate.linear")
            gate = to.do(f"{path}.gate", "activation", gate, how="sigmoid")
            made = to.linear(f"{path}.out.linear", post, self.down, f"{path}.down")
            return to.do(f"{path}.out", "multiply", gate, made)


def _mapped(
    part: nn.Module, names: Sequence[str], x: Tensor, layout: Layout, before: Sequence[Tensor], onto: Layout
) -> tuple[list[Tensor], Tensor]:
    """b t d (or packed m d) -> what the maps of these names make of their shifts, and the last position, b 1 d."""
    grid, past = layout.unpack(x), before[0] if before else None
    made, last = list[Tensor](), x
    for name in names:
        shifted, last = part.get_submodule(f"{name}_shift")(grid, layout, past)
        made.append(part.get_submodule(name)(onto.pack(shifted)))
    return made, last


def _mapped_steps(to: Steps, part: nn.Module, path: str, name: str, x: str, out: str) -> str:
    """Lists the ops of `_mapped` for one name; returns `out`."""
    shift = part.get_submodule(f"{name}_shift")
    assert isinstance(shift, TokenShift)
    x = shift.steps(to, f"{out}.shift", f"{path}.{name}_shift", x)
    return to.linear(out, x, part.get_submodule(name), f"{path}.{name}")


# --- the recurrence --------------------------------------------------------------------------------------------------


def _aged(given: Sequence[Tensor], layout: Layout) -> tuple[Tensor, ...]:
    """Keys, values, decays and the bonus. In padding nothing is written, and nothing decays."""
    key, value, log_rate, bonus = given
    decay = negative_exp(log_rate).expand(1, key.shape[1], -1)
    if layout.valid is not None:
        key, decay = key.masked_fill(~layout.valid[..., None], NEVER), decay * layout.valid[..., None]
    return key, value, decay, bonus


def wkv(
    given: Sequence[Tensor], first: Sequence[Tensor], documents: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Keys, values and decays, b t d, bonus, d -> y and ln b before each position, b t d; the last ln b and a / b.

    `first` are those before all, b d, if any. What spans of positions add is joined to spans twice as long, with two
    means of values to one. Each of the `documents`, b t, begins anew.
    """
    key, value, decay, bonus = given
    weight, mean = first or (torch.full_like(key[:, 0], NEVER), torch.zeros_like(key[:, 0]))
    weight, mean = torch.cat([weight[:, None], key], 1), torch.cat([mean[:, None], value], 1)
    left = F.pad(decay, (0, 0, 1, 0))
    documents = None if documents is None else F.pad(documents, (1, 0), value=-1)

    def before(span: int) -> Tensor:
        past = weight[:, :-span]
        if documents is None:
            return past
        return past.masked_fill((documents[:, span:] != documents[:, :-span])[..., None], NEVER)

    span = 1
    while span < weight.shape[1]:
        past, own = before(span) + left[:, span:], weight[:, span:]
        joined = (
            torch.logaddexp(own, past),
            mean[:, span:].lerp(mean[:, :-span], (past - own).sigmoid()),
            left[:, span:] + left[:, :-span],
        )
        pairs = zip((weight, mean, left), joined, strict=True)
        weight, mean, left = (torch.cat([old[:, :span], new], 1) for old, new in pairs)
        span *= 2
    past = before(1)
    return mean[:, :-1].lerp(value, (bonus + key - past).sigmoid()), past, weight[:, -1], mean[:, -1]


def log_weights(key: Tensor, decay: Tensor, bonus: Tensor) -> Tensor:
    """Keys and decays, ... t d -> ... d t s: the logs of the weights of s up to t, which their sum then divides."""
    t = key.shape[-2]
    since = F.pad(decays(decay.mT), (0, 0, 1, -1))
    now = torch.diag_embed(bonus[:, None].expand(-1, t))
    return key.mT[..., None, :] + since + now


# --- kinds of op -----------------------------------------------------------------------------------------------------


def _scores(call: Call) -> Tensor:
    return log_weights(call.x[0], call.w[0].expand_as(call.x[0]), call.w[1]).tril()


def _channels(call: Sized) -> tuple[int, ...]:
    t, d = call.x[0].shape
    return d, t, t


KINDS |= {
    "ageing_scores": Kind(_scores, _channels),
    "wkv": Kind(only_sized, saves=its_inputs, width=lambda _: 4),
}
