"""Token tables in eight bits return the rows that the tied output matrix multiplies by."""

import pytest
import torch
from torch import nn

from clearhead import config as c
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.model.assign import merged
from clearhead.model.fast import int8
from clearhead.model.fast.int8 import quantized
from clearhead.model.linear import TOGETHER, RoundedTable, effective_weight, parameter, rounded
from tests.model import small
from tests.model.eight_bits import make_exact
from tests.model.small import VOCAB, ids

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch without oneDNN")


def bytes_of_tables(network: Transformer) -> int:
    """Of each table once."""
    tables = nn.ModuleList(stack.lookup for stack in network.stacks().values())
    return sum(x.numel() * x.element_size() for x in (*tables.parameters(), *tables.buffers()))


def test_large_tables_are_rounded_in_pieces():
    weight = torch.randn(5, TOGETHER // 2 - 1)
    scale = weight.abs().amax(1) / 127
    integers, found = rounded(weight)
    assert torch.equal(found, scale)
    assert torch.equal(integers, (weight / scale[:, None]).round().to(torch.int8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_those_of_the_rounded_table(dtype: torch.dtype):
    weight = torch.randn(VOCAB, 16)
    table = RoundedTable(weight, dtype)
    found = table(ids(2, 5))
    assert found.dtype == dtype
    assert torch.equal(found, effective_weight(table)[ids(2, 5)])
    assert (found - weight[ids(2, 5)]).abs().max() <= weight.abs().max() / (254 if dtype == torch.float32 else 100)


@torch.no_grad()
@pytest.mark.parametrize("name", ["decoder", "encoder_decoder"])
@pytest.mark.parametrize("exact", [False, True])
def test_a_tied_table_is_that_of_the_output(name: str, exact: bool, monkeypatch):
    make_exact(monkeypatch)
    monkeypatch.setattr(int8, "sums_are_exact", lambda: exact)
    network: Transformer = getattr(small, name)()
    assert isinstance(network.config.head, c.LanguageHead)
    assert network.config.head.tied
    float_bytes = bytes_of_tables(network)
    quantized(network)
    output = network.get_submodule("head.output")
    assert isinstance(output, int8.Int8Linear)
    for stack in network.stacks().values():
        assert stack.lookup is network.last_stack.lookup
        assert torch.equal(effective_weight(stack.lookup), output.effective_weight())
        assert torch.equal(parameter(network, "decoder.embed.tokens.weight"), output.effective_weight())
    assert bytes_of_tables(network) == float_bytes // 4 + 4 * VOCAB
    inputs = [ids(2, 5)] * len(network.stacks())
    plain = merged(network)
    assert {type(stack.lookup) for stack in plain.stacks().values()} == {nn.Embedding}
    assert plain.last_stack.lookup is next(iter(plain.stacks().values())).table
    step = 0.1 if exact else 0.02
    assert (network(*inputs) - plain(*inputs)).norm() < step * plain(*inputs).norm(), "activations alone are rounded"


@pytest.mark.parametrize("token", [-1, VOCAB])
def test_an_id_without_a_row_is_refused(token: int):
    network = quantized(small.decoder())
    with pytest.raises(
        UserError, match=rf"^ids: expected numbers in 0..{VOCAB - 1}, the rows of the table, got {token}"
    ):
        network(torch.tensor([[1, token]]))
