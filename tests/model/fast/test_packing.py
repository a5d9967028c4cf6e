"""Packed matrices compute what plain ones do, and any write to any weight reaches the next call."""

import gc
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from clearhead.generation import complete
from clearhead.generation.decoding import PATIENCE
from clearhead.model.attention import Attention
from clearhead.model.fast import autotune, packing
from clearhead.model.fast.packing import PackedLinear, forget, packed, ready
from clearhead.recipe.generation import GenerationConfig
from clearhead.trace import trace
from tests.model import small
from tests.model.small import assert_close, ids

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch without oneDNN")


@pytest.fixture
def tiny_pays(monkeypatch) -> None:
    """Every matrix is worth packing, and packed products are the quicker ones."""
    monkeypatch.setattr(packing, "WORTH_PACKING", 1)
    monkeypatch.setattr(autotune, "_found", {})
    monkeypatch.setattr(autotune, "_spent", [])
    monkeypatch.setattr(autotune, "BUDGET", 1e9)
    monkeypatch.setattr(autotune, "time_each", lambda runs: {name: float(name != "packed") for name in runs})


def kinds(network: nn.Module) -> set[str]:
    """The classes of linear maps in a network."""
    return {type(m).__name__ for m in network.modules() if type(m).__name__.endswith("Linear")}


def packed_map(linear: nn.Linear, way: str = "packed") -> PackedLinear:
    return PackedLinear([linear], packing.WAYS[way][0](linear.weight.detach()), way)


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """PyTorch's threads, for a test."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@torch.inference_mode()
@pytest.mark.parametrize(("n_rows", "bias"), [(1, False), (2, True), (8, False), (100, True)])
@pytest.mark.parametrize("by_inputs", [False, True])
@pytest.mark.parametrize("shape", [(16, 24), (288, 768), (513, 70)])
def test_packed_is_plain(shape: tuple[int, int], by_inputs: bool, n_rows: int, bias: bool, threads: int):
    with torch.inference_mode(False):
        plain = small.matrix(shape, bias=bias, by_inputs=by_inputs)
    x = torch.randn(2, n_rows, shape[0])
    for way in packing.COPIES:
        copy = packed_map(plain, way)
        assert torch.equal(copy.effective_weight(), plain.weight)
        assert_close(copy(x), plain(x))
        assert copy(x[:, :0]).shape == plain(x[:, :0]).shape
    assert_close(PackedLinear([plain], plain.weight, "direct")(x), plain(x))


@torch.no_grad()
@pytest.mark.parametrize("key_bias", [False, True])
@pytest.mark.parametrize("name", ["decoder", "encoder_decoder"])
def test_packed_network_is_the_network(tiny_pays: None, name: str, key_bias: bool):
    network = getattr(small, name)(key_bias=key_bias)
    inputs = [ids(2, 5)] if name == "decoder" else [ids(2, 6), ids(2, 5)]
    state = torch.get_rng_state()
    fast = packed(network)
    assert torch.equal(state, torch.get_rng_state()), "packing draws no random numbers"
    assert (kinds(network), kinds(fast)) == ({"Linear"}, {"PackedLinear"})
    assert_close(fast(*inputs), network(*inputs))
    own = dict(network.named_parameters())
    assert all(own[name] is parameter for name, parameter in fast.named_parameters())
    with trace(fast) as t:
        assert_close(fast(*inputs), network(*inputs))
    assert "decoder.blocks.1.attn.heads" in t


def test_matrices_are_packed_once_and_freed_with_their_network(tiny_pays: None):
    network = small.decoder()
    assert ready(network) is network
    packed(network)
    first = {linear: kept["packed"].matrix for linear, kept in packing._kept.items()}
    assert kinds(ready(network)) == {"PackedLinear"}
    with torch.no_grad():
        network.get_parameter("decoder.blocks.0.ffn.up.weight").mul_(2)
    assert ready(network) is network, "some matrix would have to be packed"
    packed(network)
    changed = [linear for linear, kept in packing._kept.items() if kept["packed"].matrix is not first[linear]]
    assert changed == [network.get_submodule("decoder.blocks.0.ffn.up")]
    forget(network)
    assert ready(network) is network
    packed(network)
    before = len(packing._kept)
    del network, first, changed
    gc.collect()
    assert len(packing._kept) < before


def test_each_order_is_a_copy_that_is_kept(tiny_pays: None, monkeypatch):
    network, ways = small.decoder(), {1: "packed", 8: "by inputs, in parts"}
    for rows, way in ways.items():
        monkeypatch.setattr(packing, "autotune", lambda question, ways, way=way: way)
        monkeypatch.setattr(packing, "recall_tuned", lambda question, ways, way=way: way)
        assert ready(network, rows=rows) is network, "what is kept has another order"
        packed(network, rows=rows)
        assert kinds(ready(network, rows=rows)) == {"PackedLinear"}
    orders = {tuple(kept) for linear, kept in packing._kept.items() if linear in {*network.modules()}}
    assert orders == {tuple(ways.values())}


def test_what_is_slower_packed_stays_plain(tiny_pays: None, monkeypatch):
    """Settled by a clock, for each shape and number of rows."""
    asked: list[str] = []

    def quicker(question: str, ways: dict[str, object]) -> str:
        asked.append(question)
        assert {*ways} >= {"direct", "packed", "by inputs", "plain"}
        return "plain" if f"{small.VOCAB} x 16, 1 rows" in question else "packed"

    monkeypatch.setattr(packing, "autotune", quicker)
    network = small.decoder()
    lone, several = packed(network), packed(network, rows=5)
    assert kinds(lone) == {"Linear", "PackedLinear"}
    assert type(lone.get_submodule("head.output")) is nn.Linear
    assert kinds(several) == {"PackedLinear"}
    assert {question.rpartition(", ")[2] for question in asked} == {"1 rows", "8 rows"}


@torch.no_grad()
def test_a_matrix_as_it_is_needs_no_copy(tiny_pays: None, monkeypatch):
    monkeypatch.setattr(packing, "autotune", lambda question, ways: "direct")
    monkeypatch.setattr(packing, "recall_tuned", lambda question, ways: "direct")
    network, x, kept = small.decoder(), ids(2, 5), len(packing._kept)
    fast = packed(network)
    assert kinds(fast) == kinds(ready(network)) == {"PackedLinear"}
    assert (packing.copied(fast), len(packing._kept)) == ([], kept)
    assert all(network.get_parameter(name) is parameter for name, parameter in fast.named_parameters())
    network.get_parameter("decoder.blocks.0.ffn.up.weight").data.neg_()
    assert_close(fast(x), network(x))


# --- any write to any weight is seen ----------------------------------------------------------------------------------


def by_numpy(owner: nn.Linear) -> None:
    values = owner.weight.detach().numpy()
    values[1], values[0] = np.copy(values[0]), np.copy(values[1])


def swapped(owner: nn.Linear) -> None:
    torch.utils.swap_tensors(owner.weight, nn.Parameter(-owner.weight.detach()))


def loaded(owner: nn.Linear, *, assign: bool = False) -> None:
    owner.load_state_dict({name: -value for name, value in owner.state_dict().items()}, assign=assign)


def stepped(owner: nn.Linear) -> None:
    owner.weight.grad = torch.ones_like(owner.weight) * torch.arange(len(owner.weight))[:, None]
    torch.optim.AdamW([owner.weight], lr=0.1, fused=True).step()
    owner.weight.grad = None


WAYS: dict[str, Callable[[nn.Linear], object]] = {
    "data": lambda owner: owner.weight.data.neg_(),
    "view": lambda owner: owner.weight.data.view(-1)[19:50].fill_(80.0),
    "numpy": by_numpy,
    "swap": swapped,
    "a new parameter": lambda owner: setattr(owner, "weight", nn.Parameter(-owner.weight.detach())),
    "load_state_dict": loaded,
    "assign": lambda owner: loaded(owner, assign=True),
    "fused optimizer": stepped,
}


@pytest.mark.parametrize(
    ("way", "name"), [*zip(WAYS, ["decoder.blocks.0.attn.k", "decoder.blocks.1.ffn.down"] * 4, strict=True)]
)
def test_a_write_is_seen_by_the_next_call(tiny_pays: None, way: str, name: str):
    network = small.decoder()
    owner = network.get_submodule(name)
    assert isinstance(owner, nn.Linear)
    prompt, config = ids(1, 4), GenerationConfig(max_new_tokens=PATIENCE + 4)
    [[before]] = complete(network, prompt.tolist(), config=config)
    assert kinds(ready(network)) == {"PackedLinear"}
    WAYS[way](owner)
    [[found]] = complete(network, prompt.tolist(), config=config)
    forget(network)
    assert complete(network, prompt.tolist(), config=config) == [[found]]
    assert before.score != found.score


@torch.no_grad()
def test_settings_hooks_and_other_layers_are_those_of_now(tiny_pays: None):
    class Twice(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:  # noqa: A002
            return 2 * super().forward(input)

    network, x = small.decoder(), ids(1, 4)
    packed(network)
    attn, down = network.get_submodule("decoder.blocks.0.attn"), network.get_submodule("decoder.blocks.1.ffn.down")
    assert isinstance(attn, Attention)
    assert isinstance(down, nn.Linear)

    changes: list[Callable[[], object]] = [
        lambda: setattr(attn, "scale", 3 * attn.scale),
        lambda: nn.init.constant_(down.bias, 5.0),
        lambda: setattr(attn, "q", Twice(16, 16)),
        lambda: down.register_forward_hook(lambda _, __, y: y + 1),
        lambda: setattr(attn.v, "forward", lambda x: 3 * nn.functional.linear(x, attn.v.weight)),
    ]
    for change in changes:
        before = network(x)
        change()
        assert not torch.equal(before, network(x))
        assert_close(packed(network)(x), network(x))


def test_autocast_has_plain_products(tiny_pays: None):
    network = small.decoder()
    packed(network)
    with torch.autocast("cpu", torch.bfloat16):
        assert ready(network) is packed(network) is network
    assert ready(network) is not network


def test_the_network_itself_where_packing_would_not_pay(tiny_pays: None):
    network = small.decoder().double()
    assert packed(network) is network


def test_writing_packs_after_some_steps_and_says_the_same(tiny_pays: None, monkeypatch):
    network = small.encoder_decoder()
    sources = [[1, 2, 3], [4, 5]]

    def texts(n: int) -> list[tuple[int, ...]]:
        config = GenerationConfig(max_new_tokens=n, start_id=0, beams=2)
        return [best.tokens for [best] in complete(network, source=sources, config=config)]

    monkeypatch.setattr(packing, "WORTH_PACKING", 10**6)
    plain = texts(PATIENCE + 6)
    monkeypatch.setattr(packing, "WORTH_PACKING", 1)
    texts(PATIENCE - 1)
    assert ready(network, rows=4) is network
    assert texts(PATIENCE + 6) == plain
    assert ready(network, rows=4) is not network
    network.train()
    texts(2)
    assert ready(network, rows=4) is network, "training gets the memory back"
