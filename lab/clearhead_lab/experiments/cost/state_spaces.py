"""Layers that keep a state of one size: linear attention, RWKV, and a decay that the token chooses, as in Mamba."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead import config as c
from clearhead.model import Layout
from clearhead.model.attention import Attention
from clearhead_lab.experiment import Row
from clearhead_lab.experiments.cost.linear_attention import KEYS, VALUES
from clearhead_lab.experiments.cost.linear_attention import batch as pairs
from clearhead_lab.learning import IGNORED, accuracy, decoder, learn

SYMBOLS, NOISE, WIDTH, LENGTH, PAIRS = 8, 8, 32, 48, 32
EXACT, LINEAR, FIXED, CHOSEN = "attention", "no decay", "RWKV", "chosen decay"


def mix(attention: Attention, mixed: Callable[[Tensor], Tensor]) -> None:
    """Puts another mixture of the positions, b t d -> b t d, between an attention's input and its output matrix."""

    def forward(x: Tensor, layout: Layout, *_: Any, onto: Layout | None = None, **__: Any) -> Tensor:
        out = attention.out(mixed(x))
        return out if onto is None else onto.pick(out, layout)

    attention.forward = forward  # pyrefly: ignore


def keep_state(attention: Attention, kind: str) -> None:
    """Makes an attention keep a state S in place of all keys and values, with the same maps.

    S_t = a_t S_(t-1) + f(k_t) v_t^T,  y_t = f(q_t) S_t over f(q_t) times the sum of the keys,  f = elu + 1

    A head's decay a_t is 1 in linear attention (Katharopoulos et al. 2020), and chosen by x_t in Mamba (Dao and Gu
    2024, here without its convolution). Training takes all pairs at once: between s and t lies the product of the
    decays.
    """
    decay = nn.Linear(attention.q.in_features, attention.n_heads)
    nn.init.constant_(decay.bias, 3.0)

    def mixed(x: Tensor) -> Tensor:
        maps = (attention.q, attention.k, attention.v)
        q, k, v = (one(x).unflatten(-1, (attention.n_heads, -1)).transpose(1, 2) for one in maps)
        log = F.logsigmoid(decay(x)).mT
        since = (log * (kind != LINEAR)).cumsum(-1)
        kept = (since[..., :, None] - since[..., None, :]).tril().exp().tril()
        weights = (F.elu(q) + 1) @ (F.elu(k) + 1).mT * kept
        return (weights @ v / weights.sum(-1, keepdim=True)).transpose(1, 2).flatten(2)

    attention.add_module("decay", decay)
    mix(attention, mixed)


def mix_time(attention: Attention) -> None:
    """Makes an attention the time mixing of RWKV, with its maps q for the receptance, k and v   (Peng et al. 2023, 3.1)

    y_t = s(r_t) (a_(t-1) + e^(u + k_t) v_t) / (b_(t-1) + e^(u + k_t)),  a_t = e^-w a_(t-1) + e^(k_t) v_t, and b_t is
    the same without v. Each channel has its own decay w > 0 and bonus u. The maps read a mixture of x_t and x_(t-1).
    """
    width = attention.q.in_features
    shift = nn.Parameter(torch.full((3, width), 0.5))
    decay, bonus = nn.Parameter(torch.linspace(-5, 1, width)), nn.Parameter(torch.zeros(width))

    def mixed(x: Tensor) -> Tensor:
        before, maps = F.pad(x, (0, 0, 1, -1)), (attention.q, attention.k, attention.v)
        r, k, v = (one(before.lerp(x, share)) for one, share in zip(maps, shift, strict=True))
        state, kept = torch.zeros(len(x), 2 * width), (-decay.exp()).exp().repeat(2)
        states: list[Tensor] = []
        for added in torch.cat([k.exp() * v, k.exp()], 2).unbind(1):
            states.append(state)
            state = kept * state + added
        a, b = torch.stack(states, 1).chunk(2, 2)
        now = (bonus + k).exp()
        return r.sigmoid() * (a + now * v) / (b + now)

    attention.add_module("mixing", nn.ParameterList([shift, decay, bonus]))
    mix(attention, mixed)


def latest(n: int) -> tuple[Tensor, Tensor]:
    """n t: symbols among noise, two of three, and at each place the latest symbol."""
    tokens = torch.randint(0, SYMBOLS, (n, LENGTH)).masked_fill(torch.rand(n, LENGTH) < 2 / 3, NOISE)
    at = torch.where(tokens == NOISE, -1, torch.arange(LENGTH)).cummax(1).values
    return tokens, tokens.gather(1, at.clamp(min=0)).masked_fill(at < 0, IGNORED)


def build(kind: str, n_symbols: int) -> nn.Module:
    """Two causal blocks. Attention has rotary positions, the others have none."""
    network = decoder(n_symbols, head=c.TaggingHead(n_labels=SYMBOLS), d_model=WIDTH, n_heads=2, positions=c.Rotary())
    for module in list(network.modules()):
        if isinstance(module, Attention) and kind == FIXED:
            mix_time(module)
        elif isinstance(module, Attention) and kind != EXACT:
            keep_state(module, kind)
    return network


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Accuracy of naming the latest symbol among noise, and of finding the value of a key among 32 pairs."""
    steps = 150 if quick else 400
    for kind in (EXACT, LINEAR, FIXED, CHOSEN):
        network = build(kind, SYMBOLS + 1)
        learn(network, lambda: latest(32), steps=steps)
        values = {"latest symbol": accuracy(network, *latest(128))}
        finder = build(kind, KEYS * VALUES + KEYS)
        learn(finder, lambda: pairs(32, PAIRS), steps=2 * steps, lr=5e-3)
        yield Row({"layer": kind}, values | {"value of a key": accuracy(finder, *pairs(64, PAIRS))})
