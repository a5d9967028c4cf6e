"""Training a mixture of experts: loss and gradients of the reference library, and the load-balancing loss."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead import config as c
from clearhead.api import load
from clearhead.checkpoints.families.mixtures.mixtures import QWEN3_MOE
from clearhead.checkpoints.weights import mapping
from clearhead.model import Tokens, Transformer
from clearhead.model.experts import Mixture
from clearhead.tasks.task import Batch, head_loss
from clearhead.trace import trace
from tests.later import later
from tests.model import small
from tests.parity.cases import MIXTURES
from tests.parity.doubled import doubled
from tests.parity.harness import Case

later("transformers")

CASES = MIXTURES
FIRST = {case.architecture: case for case in reversed(CASES) if case.architecture.endswith("ForCausalLM")}
# Low enough to clamp the gate of some units and the other map of some.
FIRST["GptOssForCausalLM"] = next(case for case in CASES if (case.family, case.variant) == ("gpt_oss", "low-limit"))
BALANCED = {"output_router_logits": True, "router_aux_loss_coef": 0.05}
# Their auxiliary loss is refused, or they have none.
WITHOUT_BALANCE = ("afmoe", "minimax_m2", "youtu", "minicpm3", "ernie4_5_moe")
# How close: the reference adds 1e-6 to the sum by which it divides the weights of the chosen experts.
CLOSE = {"lfm2_moe": 5e-6}
LENGTHS = (7, 4, 5)


@pytest.fixture
def in_float64() -> Iterator[None]:
    with doubled():
        yield


def pair(case: Case, folder: Path, **changes: Any) -> tuple[Any, Transformer]:
    """Theirs and ours with its weights, both in float64 and in training."""
    import transformers

    kind = getattr(transformers, case.architecture)
    torch.manual_seed(0)
    theirs = kind(kind.config_class(**{**case.config, **changes})).double()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if parameter.ndim > 1 and "embed" not in name:
                parameter.normal_(std=parameter.shape[-1] ** -0.5)
            elif name.endswith(("sinks", "bias")):
                parameter.normal_()
    theirs.set_experts_implementation("eager")  # Its grouped product has no float64.
    theirs.save_pretrained(folder)
    return theirs.train(), load(folder, dtype=torch.float64).network.train()


def batch() -> tuple[Tokens, Tensor, Tensor]:
    """Texts of unequal lengths, the label of each cell, and the labels that count, in order."""
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randint(3, 60, (n,), generator=generator).tolist() for n in LENGTHS]
    tokens = Tokens.pad(rows)
    assert tokens.valid is not None
    grid = tokens.ids.masked_fill(~tokens.valid, -100)
    shifted = torch.cat([grid[:, 1:], torch.full_like(grid[:, :1], -100)], 1)
    return tokens, grid, shifted[tokens.valid]


def their_loss(theirs: Any, tokens: Tokens, labels: Tensor) -> Tensor:
    assert tokens.valid is not None
    return theirs(tokens.ids, attention_mask=tokens.valid.long(), labels=labels).loss


def our_loss(ours: Transformer, tokens: Tokens, labels: Tensor) -> Tensor:
    total, _ = head_loss(ours, Batch((tokens,), labels, n_ignored=int((labels == -100).sum())))
    return total / (labels != -100).sum()


@pytest.mark.parametrize(
    ("name", "changes"),
    [("MixtralForCausalLM", {}), *((n, {} if x.family in WITHOUT_BALANCE else BALANCED) for n, x in FIRST.items())],
)
@pytest.mark.usefixtures("in_float64")
def test_loss_and_gradients_are_the_reference_s(name: str, changes: dict[str, Any], tmp_path):
    case = FIRST[name]
    theirs, ours = pair(case, tmp_path, **changes)
    tokens, grid, labels = batch()
    expected, found = their_loss(theirs, tokens, grid), our_loss(ours, tokens, labels)
    close = CLOSE.get(case.family, 1e-9)
    assert found.item() == pytest.approx(expected.item(), rel=close)
    expected.backward()
    found.backward()
    for name, parameter in their_gradients(theirs, ours, tmp_path).items():
        if name.endswith(".correction"):
            continue  # A buffer there: it follows the load, not a gradient.
        mine = ours.get_parameter(name).grad
        assert mine is not None, name
        torch.testing.assert_close(
            mine, parameter, rtol=close, atol=close * float(parameter.detach().abs().max()), msg=name
        )


def their_gradients(theirs: Any, ours: Transformer, folder: Path) -> dict[str, Tensor]:
    """The reference's gradients under our names: of a copy of it whose weights are its gradients."""
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
    theirs.save_pretrained(folder / "gradients")
    return dict(load(folder / "gradients", dtype=torch.float64).network.named_parameters())


# --- a small mixture, trained ----------------------------------------------------------------------------------------


def counts(network: Transformer, tokens: Tensor) -> Tensor:
    """How often each expert is chosen, over all layers."""
    with torch.no_grad(), trace(network) as seen:
        network(tokens)
    return sum((seen[a].sum((0, 1)) for a in seen if a.endswith("router.chosen")), torch.zeros(4))


def trained(balance: float) -> tuple[float, float]:
    """The last loss, and how uneven the choice is: 0 where all experts are chosen equally often."""
    torch.manual_seed(0)
    stack = small.stack(gated=True, activation="silu", norm="rms", experts=c.Experts(n=4, balance=balance))
    network = Transformer(c.ModelConfig(decoder=stack)).train()
    # Routers that all prefer one expert.
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, Mixture):
                module.router.weight[0] += 0.3
    text = torch.arange(12).repeat(8, 2)[:, :17] % small.VOCAB
    optimizer, loss = torch.optim.AdamW(network.parameters(), lr=5e-3), torch.zeros(())
    for _ in range(60):
        loss = network(text[:, :-1], labels=text[:, 1:].flatten()) / text[:, 1:].numel()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.eval()
    found = counts(network, text)
    plain = network(text[:, :-1], labels=text[:, 1:].flatten()) / text[:, 1:].numel()
    return plain.item(), (found / found.mean() - 1).abs().max().item()


def test_a_small_mixture_learns_and_balances():
    (loss, uneven), (balanced_loss, even) = trained(0.0), trained(0.1)
    assert loss < 0.3
    assert balanced_loss < 0.3
    assert even < 0.7 * uneven


def test_evaluation_leaves_the_load_balancing_loss_out():
    networks = [small.decoder(experts=c.Experts(n=3, balance=balance)) for balance in (0.0, 0.5)]
    text = small.ids(2, 6)
    losses = [network(text[:, :-1], labels=text[:, 1:].flatten()).item() for network in networks]
    assert losses[0] == losses[1]
    learning = [network.train()(text[:, :-1], labels=text[:, 1:].flatten()).item() for network in networks]
    # It is at least `balance` times the number of chosen experts, for each label.
    assert learning[1] - learning[0] > 0.9 * 0.5 * 2 * 10


def test_padding_has_no_load():
    network = small.decoder(experts=c.Experts(n=3, balance=0.5)).train()
    batches = [Tokens.pad(small.sequences(5, 8), packed=packed) for packed in (False, True)]
    labels = torch.zeros(13, dtype=torch.long)
    found = [network(tokens, labels=labels).item() for tokens in batches]
    assert found[1] == pytest.approx(found[0], rel=1e-5)
    wider = Tokens.pad([*small.sequences(5, 8)], fill=3, left=True)
    assert network(wider, labels=labels).item() == pytest.approx(found[0], rel=1e-5)


def test_recomputed_blocks_count_once():
    network = small.decoder(experts=c.Experts(n=3, balance=0.5)).train()
    text, grads = small.ids(2, 6), list[Tensor]()
    for recompute in (False, True):
        network.last_stack.recompute = recompute
        network.zero_grad()
        network(text[:, :-1], labels=text[:, 1:].flatten()).backward()
        grads.append(network.get_parameter("decoder.blocks.0.ffn.router.weight").grad.clone())  # type: ignore[union-attr]
    small.assert_close(grads[1], grads[0])


def test_every_rule_of_experts_saves_what_it_loads():
    """In one tensor, as the reference library computes, or each by itself: the same experts."""

    found = QWEN3_MOE.read(
        {
            "num_experts": 2,
            "num_experts_per_tok": 1,
            "hidden_size": 8,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
        },
        where="here",
    )
    config, head = found
    rules, at = QWEN3_MOE.table(config, head), "model.layers.0.mlp.experts"
    gate, up, down = torch.randn(2, 3, 8), torch.randn(2, 3, 8), torch.randn(2, 8, 3)
    fused = {f"{at}.gate_up_proj": torch.cat([gate, up], 1), f"{at}.down_proj": down}
    parts = {"gate_proj": gate, "up_proj": up, "down_proj": down}
    single = {f"{at}.{e}.{name}.weight": parts[name][e] for e in range(2) for name in parts}
    one, other = (mapping.load(rules, theirs, where="here").tensors for theirs in (fused, single))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert mapping.save(rules, one).keys() == single.keys()
