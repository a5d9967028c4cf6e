"""Eight-bit matrices compute the product of the rounded numbers, on every processor and with each kind of product."""

import pytest
import torch
from torch import nn

from clearhead.errors import UserError
from clearhead.generation import complete
from clearhead.model import Transformer
from clearhead.model.fast import int8
from clearhead.model.fast.fused_qkv import FusedQKVPart
from clearhead.model.fast.int8 import Float32Rows, Int8Linear, RoundedRows, multiplies_halves, quantized
from clearhead.model.fast.packing import packed
from clearhead.model.linear import RoundedTable, effective_weight, refuse_rounded
from clearhead.recipe.generation import GenerationConfig
from clearhead.trace import trace
from tests.model import small
from tests.model.eight_bits import defined_product, make_exact
from tests.model.small import ids, matrix

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch without oneDNN")

needs_halves = pytest.mark.skipif(not multiplies_halves(), reason="PyTorch without FBGEMM")
KINDS = [pytest.param(Float32Rows, marks=needs_halves), RoundedRows]
KERNEL = int8.product
SHAPES = [(16, 24), (288, 768), (513, 70), (64, 3)]


@pytest.fixture(autouse=True)
def _exact(monkeypatch) -> None:
    make_exact(monkeypatch)


def rounded(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Integers and the scale of each row."""
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round(), scale


@torch.inference_mode()
@pytest.mark.parametrize(("n_rows", "bias"), [(1, False), (5, True), (32, False), (64, True)])
@pytest.mark.parametrize("by_inputs", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_int8_is_the_product_of_rounded_numbers(
    kind: type[Int8Linear], shape: tuple[int, int], by_inputs: bool, n_rows: int, bias: bool
):
    with torch.inference_mode(False):
        plain = matrix(shape, bias=bias, by_inputs=by_inputs)
    x = torch.randn(n_rows, shape[0]) * torch.logspace(-3, 3, n_rows)[:, None]
    eight = kind(plain)
    w, s_w = rounded(plain.weight)
    assert torch.allclose(eight.effective_weight(), w * s_w)
    q, s_x = rounded(x) if kind is RoundedRows else (x, torch.ones(n_rows, 1))
    product = q.double() @ w.double().T * s_x * s_w.T
    expected = product.float() + (0 if plain.bias is None else plain.bias)
    if kind is RoundedRows:  # A number halfway between two integers may go either way.
        assert ((eight(x) - expected).abs() <= 2 * (s_x * s_w.T * w.abs().amax(1))).all()
    assert (eight(x) - expected).norm() <= (2e-3 if kind is RoundedRows else 1e-6) * expected.norm()


@torch.inference_mode()
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_does_not_depend_on_the_others(kind: type[Int8Linear], shape: tuple[int, int]):
    """Up to float32's last roundings, for which kernels differ."""
    eight, x = kind(matrix(shape, bias=True, by_inputs=False)), torch.randn(64, shape[0])
    halves = (torch.arange(shape[0]) % 253 - 125.5) / 127  # Between two integers a last bit decides.
    x[::2] = torch.cat([halves[1:], torch.ones(1)]) * torch.rand(32, 1)
    qkv_linears, largest = eight(x), eight(x).abs().max()
    alone = torch.cat([eight(row[None]) for row in x])
    assert (alone - qkv_linears).abs().max() <= 1e-6 * largest


@torch.inference_mode()
def test_the_kernel_adds_up_where_no_sum_saturates():
    """Two products of a byte with a weight up to 63 stay below 16 bits."""
    levels = torch.randint(1, 256, (5, 96), dtype=torch.uint8)
    integers = torch.randint(-63, 64, (32, 96), dtype=torch.int8)
    packed, scale = torch.ops.onednn.qlinear_prepack(integers, None), torch.rand(32) + 0.1
    offset = torch.zeros(32, dtype=torch.long)
    expected = defined_product(levels, packed, scale, offset)
    torch.testing.assert_close(KERNEL(levels, packed, scale, offset), expected, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("n_rows", [2, 33])
@pytest.mark.parametrize("kind", KINDS)
def test_int8_of_nothing_is_the_bias(kind: type[Int8Linear], n_rows: int):
    with torch.inference_mode(False):
        plain = nn.Linear(8, 3)
        nn.init.zeros_(plain.weight[1])
    eight = kind(plain)
    assert torch.equal(eight(torch.zeros(n_rows, 8)), plain.bias.expand(n_rows, -1))
    assert eight(torch.randn(n_rows, 8))[:, 1].tolist() == [plain.bias[1].item()] * n_rows


@pytest.mark.parametrize("name", ["decoder", "encoder_decoder"])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_int8_network(kind: type[Int8Linear], name: str, monkeypatch):
    monkeypatch.setattr(int8, "sums_are_exact", lambda: kind is RoundedRows)
    network: Transformer = getattr(small, name)()
    inputs = [ids(2, 5)] if name == "decoder" else [ids(2, 6), ids(2, 5)]
    exact, shape = network(*inputs), effective_weight(network.last_stack.lookup).shape
    assert quantized(network.bfloat16()) is network
    assert {type(m) for m in network.modules() if isinstance(m, (nn.Linear, Int8Linear))} == {kind}
    assert {p.dtype for p in network.parameters()} == {torch.float32}
    assert isinstance(network.last_stack.lookup, RoundedTable)
    assert effective_weight(network.last_stack.lookup).shape == shape
    found = network(*inputs)
    assert 0 < (found - exact).norm() < 0.1 * exact.norm()
    with trace(network) as t:
        seen = network(*inputs)
    assert (seen - exact).norm() < 0.1 * exact.norm()
    assert "decoder.blocks.1.attn.heads" in t
    for part in (network.get_submodule("decoder.blocks.0.attn.q"), network.get_submodule("decoder.blocks.0.attn.v")):
        x = torch.randn(1, 16)
        assert isinstance(part, FusedQKVPart)
        assert (part(x) - nn.functional.linear(x, effective_weight(part), part.bias)).norm() < 0.02 * part(x).norm()
    assert packed(network) is network
    config = GenerationConfig(max_new_tokens=12, start_id=0, beams=2)
    found = complete(network, [[1, 2]], source=[[3]] if network.encoder else None, config=config)
    assert found == complete(network, [[1, 2]], source=[[3]] if network.encoder else None, config=config)


def test_a_write_to_rounded_weights_is_no_silent_one():
    network = quantized(small.decoder())
    for name in ("decoder.blocks.0.attn.q", "decoder.blocks.0.ffn.down"):
        with pytest.raises(AttributeError, match="weight"):
            network.get_parameter(f"{name}.weight").data[0, 0] = 80.0


def test_int8_on_another_device_is_refused():
    with pytest.raises(UserError, match=r"^int8: expected a CPU that oneDNN supports, got meta; try"):
        quantized(small.decoder().to("meta"))


def test_what_needs_the_weights_is_refused():
    network = small.decoder()
    refuse_rounded(network, "save")
    with pytest.raises(UserError, match=r"^save: expected weights as they were stored, got int8"):
        refuse_rounded(quantized(network), "save")


@pytest.mark.parametrize(("found", "kind"), [(40.0, Float32Rows), (64.0, RoundedRows)])
def test_the_kind_of_product_is_probed(found: float, kind: type[Int8Linear], monkeypatch):
    """Without VNNI, sums of two products saturate 16 bits."""
    int8.sums_are_exact.cache_clear()
    monkeypatch.setattr(int8, "_rounded_product", lambda *_: torch.full((1, 16), found))
    assert int8.sums_are_exact() == (kind is RoundedRows)
    monkeypatch.undo()
    int8.sums_are_exact.cache_clear()
