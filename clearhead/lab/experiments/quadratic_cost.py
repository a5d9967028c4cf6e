"""What attention costs as the sequence grows: explicitly, and by the fused kernel."""

from collections.abc import Iterator
from time import perf_counter

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.lab.examples.parts import on_meta
from clearhead.lab.experiment import Check, Experiment, Figures, Plot, Row
from clearhead.lab.learning import stack
from clearhead.model import Layout, Tokens, Transformer, cost
from clearhead.model.attention import Attention, Kernel
from clearhead.model.attention_bias import AttentionBias

WIDTH = 64
KERNELS: tuple[Kernel, ...] = ("explicit", "fused")


def reckoned(n: int, *, explicit: bool, d_model: int = WIDTH) -> tuple[int, int]:
    """FLOPs of a block and the largest tensor that its backward pass keeps."""
    config = stack(8, d_model, n_layers=1, positions=c.NoPositions())
    network = on_meta(lambda: Transformer(c.ModelConfig(encoder=config, head=c.NoHead())))
    flops = sum(one.cost.flops for one in cost.parts(network, n, 0, explicit=explicit))
    return flops, cost.largest_kept(network, n, 0, explicit=explicit)


@torch.no_grad()
def measure(_: int, quick: bool) -> Iterator[Row]:
    """Milliseconds, FLOPs of the block, numbers that training keeps, and the difference of the two outputs."""
    attention = Attention(stack(8, WIDTH))
    for n in (256, 512, 1024, 2048) if quick else (256, 512, 1024, 2048, 4096):
        layout, x = Layout.of(Tokens(torch.zeros(1, n, dtype=torch.long))), torch.randn(1, n, WIDTH)
        outputs: dict[str, Tensor] = {}
        for kernel in KERNELS:
            attention.kernel = kernel
            attn_bias = AttentionBias.between(layout, layout, fused=kernel == "fused")
            times: list[float] = []
            for _ in range(3):
                begun = perf_counter()
                outputs[kernel] = attention(x, layout, attn_bias)
                times.append(perf_counter() - begun)
            flops, kept = reckoned(n, explicit=kernel == "explicit")
            apart = (outputs[kernel] - outputs["explicit"]).abs().max().item()
            values = {"ms": 1000 * min(times), "FLOPs": float(flops), "numbers kept": float(kept), "difference": apart}
            yield Row({"kernel": kernel, "length": n}, values)
    for n in (512, 1024):
        yield Row({"block of width": 512.0, "length": n}, {"FLOPs": float(reckoned(n, explicit=True, d_model=512)[0])})


def growth(f: Figures, name: str, kernel: str) -> float:
    """How the figure grows from 1,024 to 2,048 positions."""
    return f.at(name, kernel=kernel, length=2048) / f.at(name, kernel=kernel, length=1024)


EXPERIMENT = Experiment(
    name="quadratic-cost",
    claim="Twice the length costs four times the compute and the memory.",
    source="documents 002, 003 (20.1, 21); Vaswani et al. 2017, table 1; Dao et al. 2022",
    measure=measure,
    checks=(
        Check(
            "explicit, numbers kept at twice the length",
            lambda f: growth(f, "numbers kept", "explicit"),
            at_least=3.9,
            at_most=4.1,
            otherwise="Explicit attention does not keep four times the numbers at twice the length.",
        ),
        Check(
            "fused, numbers kept at twice the length",
            lambda f: growth(f, "numbers kept", "fused"),
            at_least=3.9,
            role="limit",
            otherwise="The memory need not grow so: a fused kernel, with the same outputs, keeps twice as much"
            " at twice the length.",
        ),
        Check(
            "explicit, FLOPs of a block of width 64 at twice the length",
            lambda f: growth(f, "FLOPs", "explicit"),
            at_least=3.0,
            otherwise="The FLOPs of a narrow block grow less than threefold at twice the length.",
        ),
        Check(
            "FLOPs of a block of width 512, 1,024 positions over 512",
            lambda f: (
                f.at("FLOPs", length=1024, **{"block of width": 512.0})
                / f.at("FLOPs", length=512, **{"block of width": 512.0})
            ),
            at_least=3.9,
            role="limit",
            otherwise="In a wide block at usual lengths most of the compute is not in the scores, so twice the"
            " length costs less than four times as much.",
        ),
        Check(
            "fused and explicit outputs: difference",
            lambda f: max(f.all("difference", kernel="fused")),
            at_most=1e-5,
            role="control",
        ),
    ),
    plot=Plot(x="length", y="ms", by="kernel", log_x=True, log_y=True),
)
