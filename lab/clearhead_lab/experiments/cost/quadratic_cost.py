"""What attention costs as the sequence grows: explicitly, and by the fused kernel."""

from collections.abc import Iterator
from time import perf_counter

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Layout, Tokens, Transformer, cost
from clearhead.model.attention import Attention, Kernel
from clearhead.model.attention_bias import AttentionBias
from clearhead_lab.examples.parts import on_meta
from clearhead_lab.experiment import Row
from clearhead_lab.learning import stack

WIDTH = 64
KERNELS: tuple[Kernel, ...] = ("explicit", "fused")


def reckoned(n: int, *, explicit: bool, d_model: int = WIDTH) -> tuple[int, int]:
    """FLOPs of a block and the largest tensor that its backward pass keeps."""
    config = stack(8, d_model, n_layers=1, positions=c.NoPositions())
    network = on_meta(lambda: Transformer(c.ModelConfig(encoder=config, head=c.NoHead())))
    flops = sum(part.cost.flops for part in cost.parts(network, n, 0, explicit=explicit))
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
