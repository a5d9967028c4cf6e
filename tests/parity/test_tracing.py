"""Every value of a loaded model can be seen and replaced, and a head that is put out is a head that is not there."""

import pytest
import torch
from torch import Tensor

from clearhead.model.attention import Attention
from clearhead.trace import trace, zero
from tests.later import later
from tests.parity.cases import ONE_A_NETWORK
from tests.parity.harness import Case, inputs, kept

later("transformers")


def noisy(value: Tensor) -> Tensor:
    """The value, moved a little at random."""
    return value + 0.1 * torch.randn(value.shape, generator=torch.Generator().manual_seed(1)).to(value)


@pytest.mark.parametrize("case", ONE_A_NETWORK, ids=str)
@torch.no_grad()
def test_every_address_is_on_the_way_to_the_logits(case: Case):
    theirs, model = kept(case)[:2]
    network, tokens = model.network, inputs(case, theirs).ours
    with trace(network) as seen:
        logits = network(*tokens)
    for address in seen:
        assert seen[address].ndim == len(seen.axes[address].split()), address
    with trace(network, {address: seen[address] for address in seen}) as again:
        assert torch.equal(network(*tokens), logits)
    assert list(again) == list(seen)
    for address in seen:
        with trace(network, {address: noisy}):
            assert not torch.equal(network(*tokens), logits), f"{address} changes nothing"


@pytest.mark.parametrize("case", ONE_A_NETWORK, ids=str)
@torch.no_grad()
def test_a_head_put_out_is_its_columns_removed(case: Case):
    theirs, model = kept(case)[:2]
    network, tokens = model.network, inputs(case, theirs).ours
    before = network(*tokens)
    layers = {path: layer for path, layer in network.named_modules() if isinstance(layer, Attention)}
    assert layers or network.keeps_states
    for path, layer in layers.items():
        h = layer.n_heads - 1
        # Blocks that run several times have one weight.
        same = [at for at, other in layers.items() if other.out.weight is layer.out.weight]
        with trace(network, {f"{at}.z[h={h}]": zero for at in same}):
            edited = network(*tokens)
        columns = layer.out.weight[:, h * layer.d_value : (h + 1) * layer.d_value]
        whole = columns.clone()
        columns.zero_()
        layout = network.last_stack.embed.layout(tokens[-1])
        real = layout.real if edited.ndim == 3 else torch.clone  # An edit leaves padding as it is.
        torch.testing.assert_close(real(network(*tokens)), real(edited), rtol=1e-5, atol=1e-5)
        columns.copy_(whole)
        assert (edited - before).abs().max() > 1e-4, f"{path} changes nothing"
