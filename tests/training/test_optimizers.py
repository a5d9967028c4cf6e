import math

import pytest
import torch
from torch import nn

from clearhead.errors import UserError
from clearhead.recipe.training import AdamW, Muon
from clearhead.training import optimizers
from clearhead.training.optimizers import Optimizers, build, fast_dtype, roles


class Embed(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(11, 8)
        self.class_token = nn.Parameter(torch.zeros(1, 8))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.q = nn.Linear(8, 8)
        self.up = nn.Linear(8, 32)
        self.down = nn.Linear(32, 8)
        self.bias = nn.Embedding(4, 2)

    def forward(self, x):
        return x + self.down(self.up(self.q(self.norm(x))).relu()) + self.bias.weight.sum()


class Network(nn.Module):
    """The module names of the real network, and of every role at least one parameter."""

    def __init__(self, *, tied: bool):
        super().__init__()
        self.embed = Embed()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.ModuleDict({"output": nn.Linear(8, 11)})
        if tied:
            self.head["output"].weight = self.embed.tokens.weight

    def forward(self, tokens):
        x = self.embed.tokens(tokens) + self.embed.class_token
        for block in self.blocks:
            x = block(x)
        return self.head["output"](x)


CONFIGS = [
    AdamW(lr=3e-3, weight_decay=0.1),
    Muon(lr=2e-3, weight_decay=0.1, precision="float32"),
    Muon(lr=2e-3, precision="bfloat16"),
]


def make(config, *, tied=True) -> tuple[Network, Optimizers]:
    torch.manual_seed(1)
    network = Network(tied=tied)
    return network, build(network, config)


def advance(network, optimizers, steps):
    for step in steps:
        tokens = torch.randint(11, (4, 6), generator=torch.Generator().manual_seed(step))
        optimizers.set_lr(1 / step)
        optimizers.zero_grad()
        nn.functional.cross_entropy(network(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizers.step()


@pytest.mark.parametrize("tied", [True, False])
def test_roles(tied):
    hidden = {f"blocks.{i}.{m}.weight" for i in range(2) for m in ("q", "up", "down")}
    found = roles(Network(tied=tied))
    matrices = {} if tied else {"head.output.weight": "matrix"}
    plain = {name: role for name, role in found.items() if role == "plain"}
    assert found == dict.fromkeys(hidden, "hidden") | matrices | plain
    assert {"embed.tokens.weight", "embed.class_token", "blocks.0.norm.weight", "blocks.1.bias.weight"} <= plain.keys()
    assert len(found) == len(list(Network(tied=tied).parameters()))


@pytest.mark.parametrize("config", [AdamW(lr=1e-2, weight_decay=0.5), Muon(lr=1e-2, weight_decay=0.5)])
def test_only_matrices_decay(config):
    network, both = make(config, tied=False)
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    for p in network.parameters():
        p.grad = torch.zeros_like(p)
    both.step()
    shrunk = {name for name, p in network.named_parameters() if not torch.equal(p, before[name])}
    assert shrunk == {name for name, role in roles(network).items() if role != "plain"}
    weight = network.get_parameter("blocks.0.q.weight")
    assert torch.allclose(weight, before["blocks.0.q.weight"] * (1 - 1e-2 * 0.5))


def test_adamw_is_the_equation_of_the_paper():
    config = AdamW(lr=1e-2, betas=(0.8, 0.9), eps=1e-8, weight_decay=0.1)
    network, both = make(config)
    w = network.get_parameter("blocks.1.up.weight")
    ours = w.detach().double().clone()
    m = v = torch.zeros_like(ours)
    for step in range(1, 6):
        advance(network, both, [step])
        assert w.grad is not None
        g, lr = w.grad.double(), 1e-2 / step
        m, v = 0.8 * m + 0.2 * g, 0.9 * v + 0.1 * g * g
        ours = (1 - lr * 0.1) * ours - lr * (m / (1 - 0.8**step)) / ((v / (1 - 0.9**step)).sqrt() + 1e-8)
    torch.testing.assert_close(w.double(), ours, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.bfloat16, 8e-2)])
def test_muon_is_the_equation_matrix_by_matrix(monkeypatch, dtype, close):
    monkeypatch.setattr(optimizers, "_MAX_BATCH", 200)  # some shapes need two batches
    weights = [nn.Parameter(torch.randn(s)) for s in [(8, 8), (8, 16), (16, 8), (8, 8), (8, 8), (8, 8)]]
    start, expected = ([w.detach().double() for w in weights] for _ in range(2))
    momenta = [torch.zeros_like(w) for w in expected]
    muon = optimizers.Muon([{"params": weights, "weight_decay": 0.2}], lr=0.05, momentum=0.9, dtype=dtype)
    for _ in range(3):
        for i, w in enumerate(weights):
            w.grad = torch.randn_like(w)
            g = w.grad.double()
            momenta[i] = 0.9 * momenta[i] + 0.1 * g
            x = 0.9 * momenta[i] + 0.1 * g
            x = x / x.norm()
            for _ in range(5):
                gram = x @ x.T
                x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
            expected[i] = (1 - 0.05 * 0.2) * expected[i] - 0.05 * 0.2 * math.sqrt(max(x.shape)) * x
        muon.step()
    for w, reference, before in zip(weights, expected, start, strict=True):
        assert (w - reference).norm() < close * (reference - before).norm()


@pytest.mark.parametrize("there", [{"avx2": True, "avx512_bf16": False}, {"avx512_bf16": True}, {"amx_bf16": True}])
def test_muon_rounds_where_the_processor_has_instructions_for_it(monkeypatch, there):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: there)
    expected = torch.float32 if "avx2" in there else torch.bfloat16
    assert fast_dtype(torch.device("cpu")) == expected


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.kind}-{getattr(c, 'precision', '')}")
def test_state_made_before_the_first_step_changes_none(config):
    (lazy, lazy_both), (eager, eager_both) = make(config), make(config)
    eager_both.allocate()
    held = {name: t.data_ptr() for name, t in eager_both.state_tensors().items()}
    for network, both in ((lazy, lazy_both), (eager, eager_both)):
        advance(network, both, range(1, 4))
    assert {name: t.data_ptr() for name, t in eager_both.state_tensors().items()} == held
    assert all(torch.equal(a, b) for a, b in zip(lazy.parameters(), eager.parameters(), strict=True))


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("blocks.0.up.bias.exp_avg", None, r"expected float32\[32\], got no such tensor"),
        ("new", torch.zeros(2), "new: expected no such tensor"),
        ("blocks.0.up.bias.exp_avg", torch.zeros(3), r"expected float32\[32\], got float32\[3\]"),
    ],
)
def test_state_of_another_network_is_refused_and_changes_nothing(name, tensor, message):
    network, both = make(CONFIGS[0])
    advance(network, both, [1])
    before = {name: t.clone() for name, t in both.state_tensors().items()}
    state = {name: torch.ones_like(t) for name, t in before.items()}
    state.pop(f"adamw.{name}", None)
    if tensor is not None:
        state[f"adamw.{name}"] = tensor
    with pytest.raises(UserError, match=rf"^optimizer\.safetensors:adamw\..*{message}"):
        both.load_state_tensors(state, where="optimizer.safetensors")
    assert all(torch.equal(t, before[name]) for name, t in both.state_tensors().items())


def test_frozen_parameters_are_left_alone_and_all_frozen_is_refused():
    network = Network(tied=True)
    network.embed.requires_grad_(requires_grad=False)
    both = build(network, AdamW())
    assert not any("embed" in name for name in both.state_tensors())
    with pytest.raises(UserError, match="frozen"):
        build(network.requires_grad_(requires_grad=False), AdamW())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("config", [*CONFIGS, AdamW(lr=3e-3, fused=False)])
def test_a_factor_of_the_step_is_one_of_the_gradients(config, dtype):
    """Half of a number is exact, so that all bits are equal."""
    inside, before = (make(config) for _ in range(2))
    for (network, both), factor in ((inside, 0.5), (before, 1.0)):
        network.to(dtype)
        for step in range(3):
            for p in network.parameters():
                p.grad = torch.randn(p.shape, dtype=dtype, generator=torch.Generator().manual_seed(step))
                p.grad *= 0.5 / factor
            both.step(factor=factor)
    for a, b in zip(inside[0].parameters(), before[0].parameters(), strict=True):
        assert torch.equal(a, b)
