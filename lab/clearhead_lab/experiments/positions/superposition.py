"""How far the parts of a network are from f(word + position) = f(word) + f(position)."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Layout, Tokens, Transformer
from clearhead.model.attention_bias import AttentionBias
from clearhead.model.positions import sinusoids
from clearhead_lab.experiment import Row
from clearhead_lab.learning import copying, learn, published

SYMBOLS, LENGTH, BACK, WIDTH = 16, 32, 3, 64
SMALL = 0.01
Part = Callable[[Tensor], Tensor]


def parts(network: Transformer) -> dict[str, Part]:
    """The first block's parts and all blocks, each from vectors to vectors, b t d -> b t d."""
    stack = network.last_stack
    layout = Layout.of(Tokens(torch.zeros(1, LENGTH, dtype=torch.long)))
    bias = AttentionBias.between(layout, layout)
    first = stack.blocks[0]

    def whole(x: Tensor) -> Tensor:
        for block in stack.blocks:
            x = block(x, layout, bias)
        return x

    return {
        "values": first.get_submodule("attn.v"),
        "attention": lambda x: first.get_submodule("attn")(x, layout, bias),
        "feed-forward": first.get_submodule("ffn"),
        "norm": first.get_submodule("attn_norm"),
        "network": whole,
    }


@torch.no_grad()
def miss(f: Part, a: Tensor, b: Tensor) -> float:
    """|f(a + b) - f(a) - f(b) + f(0)| over |f(a + b) - f(0)|: a constant does not count."""
    none = f(torch.zeros_like(a))
    both = f(a + b) - none
    return ((both - (f(a) - none) - (f(b) - none)).norm() / both.norm()).item()


def measure(_: int, quick: bool) -> Iterator[Row]:
    """The share of a part's output that words and positions do not give one by one, as they are and small."""
    for kind, steps in (("new", 0), ("trained", 150 if quick else 300)):
        network = published(SYMBOLS, WIDTH, kind="encoder", positions=c.Sinusoidal())
        learn(network, lambda: copying(SYMBOLS, 32, LENGTH, BACK), steps=steps)
        stack = network.last_stack
        words = stack.table.weight.detach()[torch.randint(0, SYMBOLS, (1, LENGTH))] * WIDTH**0.5
        places = sinusoids(torch.arange(LENGTH)[None], WIDTH)
        for size in (1.0, SMALL):
            for part, f in parts(network).items():
                yield Row({"network": kind, "part": part, "size": size}, {"miss": miss(f, words * size, places * size)})
