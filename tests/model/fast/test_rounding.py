"""A network whose matrices are rounded, in float32."""

import pytest
import torch

from clearhead import config as c
from clearhead.config.adapter import Bits
from clearhead.model import Transformer
from clearhead.model.fast.grouped import rounded_to
from clearhead.model.fast.int8 import quantized
from clearhead.model.fast.rounding import rounded
from clearhead.model.linear import parameter

STACK = c.StackConfig(input=c.TokenInput(vocab_size=40), d_model=40, n_layers=2, n_heads=4, d_ff=72)


def network(*, tied: bool) -> Transformer:
    torch.manual_seed(0)
    return Transformer(c.ModelConfig(decoder=STACK, head=c.LanguageHead(tied=tied))).eval()


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("tied", [True, False])
def test_matrices_are_those_that_load_rounds_and_nothing_else_changes(bits: Bits, tied: bool):
    given = network(tied=tied)
    before = {name: value.detach().clone() for name, value in given.named_parameters()}
    made, matrices = rounded(given, bits)
    theirs = network(tied=tied)
    if bits == 8:
        theirs = quantized(theirs)
    else:
        rounded_to(theirs, 4)
    for name, value in made.named_parameters():
        assert torch.equal(given.get_parameter(name), before[name]), "the network itself stays"
        if name not in matrices:
            assert torch.equal(value, before[name])
            continue
        torch.testing.assert_close(value, matrices[name].restored(), atol=0, rtol=0)
        off, largest = (value - before[name]).detach().abs().max(), before[name].abs().max()
        assert 0 < off < largest / (100 if bits == 8 else 6)
        same = "head.output.weight" if name == "decoder.embed.tokens.weight" and tied else name
        if bits == 8 or "embed" not in same:
            torch.testing.assert_close(value, parameter(theirs, same), atol=1e-8, rtol=1e-6)
    tables = [made.get_parameter(f"{at}.weight") for at in ("head.output", "decoder.embed.tokens")]
    assert (tables[0] is tables[1]) is tied
    assert {name.rpartition(".")[2] for name in matrices} == {"weight"}
    assert not any("norm" in name or "positions" in name for name in matrices)
