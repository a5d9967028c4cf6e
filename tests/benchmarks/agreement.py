"""Whether a peer computes what ours does: with one set of weights the same logits on real tokens."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from benchmarks.contestants.ours import network_config, translation
from benchmarks.contestants.workload import Workload
from clearhead.model import Transformer

TINY = Workload(d_model=16, n_layers=2, n_heads=2, d_ff=24, vocab_size=50, n_pairs=60, max_tokens=256)


def check_logits(
    build: Callable[[Workload], nn.Module], weights: Callable[[Transformer], Mapping[str, Tensor]]
) -> None:
    """`weights` gives ours under the peer's names."""
    torch.manual_seed(1)
    ours, peer = Transformer(network_config(TINY)).eval(), build(TINY).eval()
    peer.load_state_dict(weights(ours))
    task = translation(TINY)
    batch = task.collate(task.plan(seed=0, epoch=0)[0])
    source, target = batch.inputs
    assert source.valid is not None
    with torch.no_grad():
        expected = target.real(peer(source.ids, target.ids))
        assert torch.allclose(ours(source, target), expected, atol=1e-5)
