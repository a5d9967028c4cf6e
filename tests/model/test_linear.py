"""Packed matrices say what plain ones say; eight-bit ones nearly, and a row alone what it says in company."""

import copy
import gc

import pytest
import torch
from torch import Tensor, nn

from clearhead.errors import UserError
from clearhead.generation import complete
from clearhead.generation.generate import PATIENCE
from clearhead.model import Transformer, linear
from clearhead.model.attention import Attention
from clearhead.model.linear import Int8Linear, PackedLinear, Part, forget, packed, quantized, ready, refuse_int8
from clearhead.recipe.generation import GenerationConfig
from clearhead.trace import trace
from clearhead.training.train import average_into
from tests.model import small
from tests.model.small import assert_close, ids

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch without oneDNN")


@pytest.fixture
def tiny_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every matrix is worth packing."""
    monkeypatch.setattr(linear, "WORTH_PACKING", 1)


def kinds(network: nn.Module) -> set[str]:
    """The classes of matrices in a network."""
    return {type(m).__name__ for m in network.modules() if type(m).__name__.endswith("Linear")}


def matrix(shape: tuple[int, int], *, bias: bool, by_inputs: bool) -> nn.Linear:
    """New weights; as some checkpoints have them, the outputs of one input side by side in memory."""
    made = nn.Linear(*shape, bias=bias)
    if by_inputs:
        made.weight = nn.Parameter(made.weight.detach().T.contiguous().T)
    return made


# --- packed ---------------------------------------------------------------------------------------------------------


@torch.inference_mode()
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("n_rows", [1, 2, 8, 100])
@pytest.mark.parametrize("by_inputs", [False, True])
@pytest.mark.parametrize("shape", [(16, 24), (288, 768), (513, 70)])
def test_packed_is_plain(shape: tuple[int, int], by_inputs: bool, n_rows: int, bias: bool) -> None:
    with torch.inference_mode(False):
        plain = matrix(shape, bias=bias, by_inputs=by_inputs)
    assert torch.equal(PackedLinear(plain).weight, plain.weight)
    x = torch.randn(2, n_rows, shape[0])
    assert_close(PackedLinear(plain)(x), plain(x))


@torch.no_grad()
@pytest.mark.parametrize("name", ["decoder", "encoder_decoder"])
def test_packed_network_is_the_network(tiny_pays: None, name: str) -> None:
    network = getattr(small, name)()
    inputs = [ids(2, 5)] if name == "decoder" else [ids(2, 6), ids(2, 5)]
    state = torch.get_rng_state()
    fast = packed(network)
    assert torch.equal(state, torch.get_rng_state()), "packing draws no random numbers"
    assert (kinds(network), kinds(fast)) == ({"Linear"}, {"PackedLinear"})
    part = fast.get_submodule("decoder.blocks.0.attn.k")
    assert isinstance(part, Part)
    assert torch.equal(part.weight, network.get_parameter("decoder.blocks.0.attn.k.weight"))
    assert_close(fast(*inputs), network(*inputs))
    own = dict(network.named_parameters())
    assert all(own[name] is parameter for name, parameter in fast.named_parameters())
    with trace(fast) as t:
        assert_close(fast(*inputs), network(*inputs))
    assert "decoder.blocks.1.attn.heads" in t


@torch.no_grad()
def test_the_copy_lives_as_long_as_its_weights(tiny_pays: None) -> None:
    network = small.decoder()
    assert ready(network) is network
    fast = packed(network)
    assert packed(network) is ready(network) is fast
    network.get_parameter("decoder.blocks.0.ffn.up.weight").mul_(2)
    assert ready(network) is network
    new = packed(network)
    assert new is not fast
    assert_close(new(ids(1, 4)), network(ids(1, 4)))
    forget(network)
    assert ready(network) is network
    before = len(linear._copies)
    packed(network)
    del network, fast, new
    gc.collect()
    assert len(linear._copies) == before


def test_the_copy_sees_updates_that_count_no_version(tiny_pays: None) -> None:
    network = small.decoder()
    fast = packed(network)
    weights = [p for p in network.parameters() if p.ndim == 2]
    versions = [p._version for p in weights]
    optimizer = torch.optim.AdamW(weights, lr=1e-2, fused=True)
    network(ids(1, 4)).sum().backward()
    optimizer.step()
    assert [p._version for p in weights] == versions, "if they do count now, the sample of numbers may go"
    assert ready(network) is network
    fast, quiet = packed(network), copy.deepcopy(network)
    for parameter in quiet.parameters():
        nn.init.zeros_(parameter)
    average_into(network, quiet, 0.9)
    assert ready(network) is not fast


def test_autocast_and_other_peoples_layers_have_plain_products(tiny_pays: None) -> None:
    class Twice(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:  # noqa: A002
            return 2 * super().forward(input)

    network = small.decoder()
    fast = packed(network)
    with torch.autocast("cpu", torch.bfloat16):
        assert ready(network) is packed(network) is network
    assert ready(network) is fast
    forget(network)
    attn = network.get_submodule("decoder.blocks.0.attn")
    assert isinstance(attn, Attention)
    attn.q = Twice(16, 16)
    with torch.no_grad():
        assert_close(packed(network)(ids(1, 4)), network(ids(1, 4)))


@torch.no_grad()
def test_what_somebody_hangs_into_or_sets_in_the_network_is_not_passed_by(tiny_pays: None) -> None:
    network = small.decoder()
    first = packed(network)
    handle = network.get_submodule("decoder.blocks.0.ffn").register_forward_hook(lambda *_: torch.zeros(1, 4, 16))
    assert ready(network) is packed(network) is network
    handle.remove()
    assert ready(network) is first
    attn = network.get_submodule("decoder.blocks.0.attn")
    assert isinstance(attn, Attention)
    attn.scale *= 3
    assert ready(network) is network
    assert_close(packed(network)(ids(1, 4)), network(ids(1, 4)))


@pytest.mark.parametrize("change", ["float64", "small"])
def test_the_network_itself_where_packing_would_not_pay(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "WORTH_PACKING", 1 if change == "float64" else 10**6)
    network = small.decoder()
    network = network.double() if change == "float64" else network
    assert packed(network) is network


def test_writing_packs_after_some_steps_and_says_the_same(tiny_pays: None, monkeypatch: pytest.MonkeyPatch) -> None:
    network = small.encoder_decoder()
    sources = [[1, 2, 3], [4, 5]]

    def texts(n: int) -> list[tuple[int, ...]]:
        config = GenerationConfig(max_new_tokens=n, start_id=0, beams=2)
        return [best.tokens for [best] in complete(network, source=sources, config=config)]

    monkeypatch.setattr(linear, "WORTH_PACKING", 10**6)
    plain = texts(PATIENCE + 6)
    monkeypatch.setattr(linear, "WORTH_PACKING", 1)
    texts(PATIENCE - 1)
    assert ready(network) is network
    assert texts(PATIENCE + 6) == plain
    assert ready(network) is not network
    network.train()
    texts(2)
    assert ready(network) is network, "training gets the memory back"


# --- eight bits -----------------------------------------------------------------------------------------------------


def rounded(x: torch.Tensor, levels: int = 127) -> tuple[torch.Tensor, torch.Tensor]:
    """Integers and the scale of each row."""
    scale = x.abs().amax(-1, keepdim=True) / levels
    return (x / scale).round(), scale


@torch.inference_mode()
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("n_rows", [1, 5, 64])
@pytest.mark.parametrize("by_inputs", [False, True])
@pytest.mark.parametrize("shape", [(16, 24), (288, 768), (513, 70)])
def test_int8_is_the_product_of_rounded_numbers(
    shape: tuple[int, int], by_inputs: bool, n_rows: int, bias: bool
) -> None:
    with torch.inference_mode(False):
        plain = matrix(shape, bias=bias, by_inputs=by_inputs)
    x = torch.randn(n_rows, shape[0]) * torch.logspace(-3, 3, n_rows)[:, None]
    eight = Int8Linear(plain)
    (w, s_w), (q, s_x) = rounded(plain.weight), rounded(x)
    expected = (q.double() @ w.double().T * s_x * s_w.T).float()
    expected = expected if plain.bias is None else expected + plain.bias
    # A number halfway between two integers may go either way.
    step = (s_x * s_w.T * w.abs().amax(1)).max()
    assert ((eight(x) - expected).abs() <= 2 * step).all()
    assert (eight(x) - expected).norm() <= 2e-3 * expected.norm()
    assert torch.allclose(eight.weight, w * s_w)
    together = eight(x)
    assert all(torch.equal(eight(row[None])[0], together[i]) for i, row in enumerate(x)), "a row minds no other"


@torch.inference_mode()
def test_int8_of_nothing_is_the_bias() -> None:
    with torch.inference_mode(False):
        plain = nn.Linear(8, 3)
        nn.init.zeros_(plain.weight[1])
    eight = Int8Linear(plain)
    assert torch.equal(eight(torch.zeros(2, 8)), plain.bias.expand(2, -1))
    assert eight(torch.randn(2, 8))[:, 1].tolist() == [plain.bias[1].item()] * 2


@pytest.mark.parametrize("name", ["decoder", "encoder_decoder"])
@torch.no_grad()
def test_int8_network(name: str) -> None:
    network: Transformer = getattr(small, name)()
    inputs = [ids(2, 5)] if name == "decoder" else [ids(2, 6), ids(2, 5)]
    exact, table = network(*inputs), network.last_stack.table.weight
    assert quantized(network.bfloat16()) is network
    assert kinds(network) == {"Int8Linear"}
    assert {p.dtype for p in network.parameters()} == {torch.float32}
    assert network.last_stack.table.weight.shape == table.shape, "the embedding stays"
    found = network(*inputs)
    assert 0 < (found - exact).norm() < 0.1 * exact.norm()
    with trace(network) as t:
        seen = network(*inputs)
    assert (seen - exact).norm() < 0.1 * exact.norm()
    assert "decoder.blocks.1.attn.heads" in t
    for part in (network.get_submodule("decoder.blocks.0.attn.q"), network.get_submodule("decoder.blocks.0.attn.v")):
        x = torch.randn(1, 16)
        assert isinstance(part, Part)
        assert (part(x) - torch.nn.functional.linear(x, part.weight, part.bias)).norm() < 0.02 * part(x).norm()
    assert packed(network) is network
    config = GenerationConfig(max_new_tokens=12, start_id=0, beams=2)
    found = complete(network, [[1, 2]], source=[[3]] if network.encoder else None, config=config)
    assert found == complete(network, [[1, 2]], source=[[3]] if network.encoder else None, config=config)


def test_int8_on_another_device_is_refused() -> None:
    with pytest.raises(UserError, match=r"^int8: expected a CPU that oneDNN supports, got meta; try"):
        quantized(small.decoder().to("meta"))


def test_what_needs_the_weights_is_refused() -> None:
    network = small.decoder()
    refuse_int8(network, "save")
    with pytest.raises(UserError, match=r"^save: expected weights as they were stored, got int8"):
        refuse_int8(quantized(network), "save")


def test_levels_are_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where sums of two products overflow 16 bits, as without VNNI, rows are rounded to 63 numbers a side."""
    linear._levels.cache_clear()
    monkeypatch.setattr(linear, "_product", lambda *_: torch.full((1, 16), 40.0))
    assert linear._levels() == 63
    monkeypatch.undo()
    monkeypatch.setattr(linear, "_levels", lambda: 63)
    with torch.no_grad():
        plain, x = nn.Linear(64, 32), torch.randn(4, 64)
        assert (Int8Linear(plain)(x) - plain(x)).norm() < 0.05 * plain(x).norm()
    monkeypatch.undo()
    linear._levels.cache_clear()
    assert linear._levels() in (63, 127)
