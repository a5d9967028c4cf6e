"""tap and trace: every number has an address, can be seen and changed, and costs nothing unseen."""

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from clearhead import trace as trace_module
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.trace import Address, mean, patch, scale, tap, trace, tracing, untraced, zero
from tests.model import small
from tests.model.small import assert_close, difference, ids, sequences, visits

SUBLAYER = ("q", "k", "v", "scores", "masked", "weights", "z", "heads", "out")
NORM = ("mean", "rstd", "out")
WEIGHTS = "decoder.blocks.1.attn.weights"


def contract(stack: str, n_layers: int, *, cross: bool) -> set[str]:
    """The addresses that the architecture promises for a pre-norm stack."""
    names = {f"{stack}.embed.{name}" for name in ("tokens", "positions", "sum")}
    attentions = ("attn", "cross") if cross else ("attn",)
    block = {"resid_pre", "resid_post", "ffn.pre", "ffn.post", "ffn.out", *(f"ffn_norm.{n}" for n in NORM)}
    for attention in attentions:
        block |= {f"resid_{attention}", *(f"{attention}.{n}" for n in SUBLAYER)}
        block |= {f"{attention}_norm.{n}" for n in NORM}
    names |= {f"{stack}.blocks.{i}.{name}" for i in range(n_layers) for name in block}
    return names | {f"{stack}.final_norm.{n}" for n in NORM}


def test_every_address_of_the_contract():
    network = small.encoder_decoder()
    with trace(network) as t:
        network(ids(2, 5), ids(2, 4))
    assert set(t) == contract("encoder", 2, cross=False) | contract("decoder", 2, cross=True) | {"head.logits"}
    assert len(t) == len(set(t))


@pytest.mark.parametrize("changes", small.PAIRS.values(), ids=small.PAIRS.keys())
@torch.no_grad()
def test_seeing_changes_nothing(changes: dict[str, Any]):
    network = small.encoder_decoder(**changes)
    source, target = Tokens.pad(sequences(4, 6)), Tokens.pad(sequences(5, 2), left=True)
    with trace(network) as t:
        seen = network(source, target)
    assert_close(seen, network(source, target))
    assert torch.equal(t["head.logits"], seen)
    rows = t[WEIGHTS].sum(-1)
    assert target.valid is not None
    assert_close(rows, target.valid[:, None].expand_as(rows).float())


@torch.no_grad()
def test_tracing_runs_the_padded_layout():
    network = small.encoder_decoder()
    source, target = sequences(4, 6), sequences(5, 2)
    with trace(network) as padded:
        network(Tokens.pad(source), Tokens.pad(target))
    with trace(network) as packed:
        network(Tokens.pad(source, packed=True), Tokens.pad(target, packed=True))
    assert list(packed) == list(padded)
    for address in padded:  # -inf where attention may not go
        assert_close(packed[address].nan_to_num(neginf=0.0), padded[address].nan_to_num(neginf=0.0))


def test_value_indexed_by_axes():
    network = small.decoder()
    with trace(network) as t:
        network(ids(2, 5))
    whole = t[WEIGHTS]
    assert torch.equal(t[f"{WEIGHTS}[h=2,t=-1]"], whole[:, 2, -1])
    assert torch.equal(t[f"{WEIGHTS}[ s = 0 ]"], whole[..., 0])
    at = WEIGHTS.removesuffix("weights")
    assert torch.equal(t[f"{at}q[h=1,t=3]"], t[f"{at}q"][:, 1, 3])
    assert torch.equal(t[f"{at}k[h=1,s=3]"], t[f"{at}k"][:, 1, 3])
    assert WEIGHTS in t
    assert "decoder.blocks.9.attn.weights" not in t


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("decoder.blocks.1.attn.weight", "did you mean decoder.blocks.1.attn.weights"),
        (f"{WEIGHTS}[f=1]", "axis 'f' is not one of 'b h t s'"),
        (f"{WEIGHTS}[h=4]", r"h=4 is outside 0\.\.3"),
        (f"{WEIGHTS}[h]", "expected an index such as h=2, got 'h'"),
        ("decoder blocks", "expected an address such as"),
        (f"{WEIGHTS}[h=1", "expected an address such as"),
    ],
)
def test_wrong_addresses_say_what_is_right(address: str, message: str):
    network = small.decoder()
    with trace(network) as t:
        network(ids(1, 3))
    with pytest.raises(UserError, match=message):
        _ = t[address]


def test_address_survives_its_text():
    for text in (WEIGHTS, f"{WEIGHTS}[h=2]", f"{WEIGHTS}[b=0,h=2,t=-1]"):
        assert str(Address.parse(text)) == text


# --- edits --------------------------------------------------------------------------------------------------


def edited(network: Transformer, edit: dict[str, Any], tokens: Tensor) -> tuple[Tensor, trace_module.Trace]:
    with trace(network, edit) as t:
        logits = network(tokens)
    return logits, t


@torch.no_grad()
def test_a_head_of_zeros_is_zeros_in_its_columns_of_the_output_matrix():
    network, tokens = small.decoder(), ids(2, 6)
    logits, _ = edited(network, {"decoder.blocks.1.attn.z[h=2]": zero}, tokens)
    same, _ = edited(network, {"decoder.blocks.1.attn.heads[h=2]": 0.0}, tokens)
    assert torch.equal(logits, same)
    before = network(tokens)
    network.get_parameter("decoder.blocks.1.attn.out.weight")[:, 8:12] = 0
    assert_close(logits, network(tokens))
    assert not torch.allclose(logits, before)


@torch.no_grad()
@pytest.mark.parametrize("address", sorted(contract("encoder", 2, cross=False) | contract("decoder", 2, cross=True)))
def test_an_edit_anywhere_reaches_the_result(address: str):
    network = small.encoder_decoder()
    source, target = ids(1, 5), ids(1, 4)
    before = network(source, target)
    with trace(network, {address: lambda value: value * 1.5 + 0.1 * torch.randn_like(value)}) as t:
        after = network(source, target)
    assert not torch.allclose(after, before)
    assert torch.equal(t["head.logits"], after)


@torch.no_grad()
def test_value_function_tensor_and_shorthands():
    network, tokens = small.decoder(), ids(2, 5)
    at = "decoder.blocks.0.resid_post"
    with trace(network) as clean:
        network(tokens)
    value = clean[at]
    kinds: dict[str, tuple[Any, Tensor]] = {
        "number": (2.5, torch.full_like(value, 2.5)),
        "tensor": (torch.arange(16.0), torch.arange(16.0).expand_as(value)),
        "double": (value.double() + 1, value + 1),
        "function": (torch.sin, value.sin()),
        "zero": (zero, torch.zeros_like(value)),
        "mean": (mean, value.mean(-1, keepdim=True).expand_as(value)),
        "scale": (scale(-2.0), value * -2.0),
        "patch": (patch(clean, "decoder.embed.sum"), clean["decoder.embed.sum"]),
    }
    for name, (edit, expected) in kinds.items():
        _, t = edited(network, {at: edit}, tokens)
        assert difference(t[at], expected) <= 1, name
    _, t = edited(network, {f"{at}[b=1,t=2]": zero}, tokens)
    expected = value.clone()
    expected[1, 2] = 0
    assert torch.equal(t[at], expected)


@torch.no_grad()
def test_two_edits_of_one_value_apply_in_order():
    network, at = small.decoder(), "decoder.blocks.0.resid_post"
    _, t = edited(network, {f"{at}[t=0]": 1.0, at: scale(3.0), f"{at}[t=1]": 7.0}, ids(1, 3))
    assert t[f"{at}[t=0]"].unique().tolist() == [3.0]
    assert t[f"{at}[t=1]"].unique().tolist() == [7.0]


def test_an_edit_that_met_nothing_is_an_error():
    network = small.decoder()
    with pytest.raises(
        UserError, match=r"edited, but no value has this address; did you mean decoder\.blocks\.0\.attn\.z\?"
    ):
        edited(network, {"decoder.blocks.0.attn.zz": zero}, ids(1, 3))
    assert not tracing()


@pytest.mark.parametrize("value", [torch.zeros(3), lambda v: v[..., :1, :2]])
def test_an_edit_of_the_wrong_shape_is_one_clear_line(value: Any):
    network = small.decoder()
    with pytest.raises(UserError, match=r"decoder\.blocks\.0\.resid_post.*shape"):
        edited(network, {"decoder.blocks.0.resid_post": value}, ids(1, 5))


@pytest.mark.parametrize("index", ["", "[h=1]"])
def test_gradients_of_what_was_seen(index: str):
    network = small.decoder()
    edit = {f"{WEIGHTS}{index}": lambda value: value * 1.0} if index else {}
    with trace(network, edit) as t:
        logits = network(ids(2, 5))
    weights = t[WEIGHTS]
    weights.retain_grad()
    logits.square().sum().backward()
    assert weights.grad is not None
    assert weights.grad.shape == weights.shape
    assert weights.grad.abs().max() > 0


def test_gradients_through_an_edit():
    network = small.decoder()
    steering = torch.zeros(16, requires_grad=True)
    logits, _ = edited(network, {"decoder.blocks.0.resid_post[t=2]": lambda v: v + steering}, ids(2, 5))
    logits[:, 1].sum().backward(retain_graph=True)
    assert steering.grad is not None
    assert steering.grad.abs().max() == 0
    logits[:, 4].sum().backward()
    assert steering.grad.abs().max() > 0


# --- before and after ---------------------------------------------------------------------------------------


def explode(value: Tensor) -> Tensor:
    raise RuntimeError("in the middle")


def test_nothing_stays_behind_after_an_exception():
    network, tokens = small.decoder(), ids(1, 4)
    before = network(tokens)
    with pytest.raises(RuntimeError, match="in the middle"):
        edited(network, {WEIGHTS: explode}, tokens)
    with pytest.raises(KeyboardInterrupt), trace(network):
        raise KeyboardInterrupt
    assert not tracing()
    assert torch.equal(network(tokens), before)
    with trace(network) as t:
        network(tokens)
    assert WEIGHTS in t


def test_traces_do_not_nest_and_the_outer_goes_on():
    network = small.decoder()
    with trace(network) as t:
        with pytest.raises(RuntimeError, match="already running"), trace(network):
            pass
        network(ids(1, 3))
    assert WEIGHTS in t


def test_a_pass_amid_a_traced_one_is_neither_seen_nor_edited():
    network = small.decoder()
    plain = network(ids(1, 4))
    inner = list[Tensor]()

    def amid(*_: object) -> None:
        handle.remove()
        with untraced():
            inner.append(network(ids(1, 4)))
        with suppress(ZeroDivisionError), untraced():
            raise ZeroDivisionError

    handle = network.last_stack.blocks[1].register_forward_pre_hook(amid)
    with trace(network, {"decoder.blocks.0.resid_post": 0.0}) as t:
        outer = network(ids(1, 3))
    assert torch.equal(inner[0], plain)
    assert len(visits(t, "decoder.blocks.1.resid_post")) == 1
    assert torch.equal(t["head.logits"], outer)
    with untraced():
        network(ids(1, 3))


def test_another_network_passes_unseen():
    network, other = small.decoder(), small.decoder()
    with trace(network) as t:
        other(ids(1, 3))
    assert len(t) == 0


def test_axes_are_checked_against_the_value():
    module = nn.Linear(2, 2)
    with pytest.raises(AssertionError, match=r"x: axes 'b t d' do not fit shape \(3, 2\)"), trace(module):
        tap(module, "x", torch.zeros(3, 2), "b t d")


def test_a_part_of_a_network_can_be_traced():
    network = small.decoder()
    with trace(network.last_stack.blocks[1]) as t:
        network(ids(1, 3))
    assert "attn.weights" in t
    assert "resid_pre" in t


# --- compiled -----------------------------------------------------------------------------------------------


class Graphs:
    """A compiler that compiles nothing and keeps what it was given."""

    def __init__(self) -> None:
        self.nodes: list[list[str]] = []

    def __call__(self, module: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        self.nodes.append([f"{n.op} {n.name} {n.target} {n.args} {n.kwargs}" for n in module.graph.nodes])
        return module.forward


@pytest.fixture
def graphs() -> Any:
    torch._dynamo.reset()
    yield Graphs()
    torch._dynamo.reset()


def test_tap_leaves_no_node_in_a_compiled_graph(graphs: Graphs, monkeypatch):
    network = small.encoder_decoder(n_layers=1, norm="rms", bias=False, n_kv_heads=2)
    source, target = Tokens.pad(sequences(4, 6)), Tokens.pad(sequences(5, 2))
    torch.compile(network, fullgraph=True, backend=graphs)(source, target)
    torch._dynamo.reset()
    users = [m for n, m in list(sys.modules.items()) if n.startswith("clearhead.") and vars(m).get("tap") is tap]
    assert {m.__name__ for m in users} >= {
        "clearhead.model.attention",
        "clearhead.model.norm",
        "clearhead.model.block",
    }
    for module in users:
        monkeypatch.setattr(module, "tap", lambda owner, name, value, axes: value)
        monkeypatch.setattr(module, "tracing", lambda: False, raising=False)
    torch.compile(network, fullgraph=True, backend=graphs)(source, target)
    with_taps, without = graphs.nodes
    assert len(with_taps) > 100
    assert with_taps == without


@torch.no_grad()
def test_threads_that_trace_leave_compiled_code_on(graphs: Graphs):
    """The stance of the compiler is one for all threads, and the one that began first ends first."""
    network = small.decoder().eval()
    compiled = torch.compile(network, backend=graphs)
    began, ended = threading.Event(), threading.Event()

    def look() -> None:
        with trace(small.decoder().eval()):
            began.set()
            ended.wait(60)

    with trace(network):
        thread = threading.Thread(target=look)
        thread.start()
        began.wait(60)
    ended.set()
    thread.join()
    compiled(ids(1, 3))
    assert graphs.nodes


def test_looking_recompiles_nothing(graphs: Graphs):
    network = small.encoder_decoder()
    compiled = torch.compile(network, fullgraph=True, backend=graphs)
    source, target = Tokens.pad(sequences(4, 6)), Tokens.pad(sequences(5, 2))
    before = compiled(source, target)
    for traced in (network, cast("nn.Module", compiled)):
        with trace(traced, {"decoder.blocks.1.cross.weights[h=1]": zero}) as t:
            changed = compiled(source, target)
        assert len(visits(t, "decoder.blocks.1.attn.weights")) == 1
        assert not torch.allclose(changed, before)
    assert torch.equal(compiled(source, target), before)
    assert len(graphs.nodes) == 1


def test_another_thread_is_neither_seen_nor_edited():
    network, tokens = small.decoder().eval(), ids(1, 4)
    plain = network(tokens)
    with trace(network, {"decoder.blocks.0.attn.z": zero}) as seen:
        with ThreadPoolExecutor(1) as others:
            elsewhere, looks = others.submit(lambda: (network(tokens), tracing())).result()
        assert len(seen) == 0
        edited = network(tokens)
    assert torch.equal(elsewhere, plain)
    assert not looks
    assert not torch.equal(edited, plain)
