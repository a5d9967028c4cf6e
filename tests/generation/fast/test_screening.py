"""A screened token is the one that the whole product gives, in any order of summation, or it is not given at all."""

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import clearhead
from clearhead.generation import Finished, complete, decoding, generate
from clearhead.generation.fast import screening
from clearhead.generation.fast.recorded import Recorded
from clearhead.generation.fast.screening import EightBits, Screen, SixteenBits
from clearhead.generation.search import Hypothesis
from clearhead.model import Tokens, Transformer
from clearhead.model.fast.int8 import LEVELS, multiplies_halves, sums_are_exact
from clearhead.recipe.generation import GenerationConfig
from clearhead.trace import trace
from tests.generation.networks import BOS, EOS, PAD, network, tokens
from tests.model.eight_bits import defined_product

V, D = 1003, 96


@pytest.fixture(autouse=True, params=["arithmetic", "kernel", "halves"])
def _kernel(request, monkeypatch) -> Iterator[None]:
    """Eight bits in integers, on every processor, and by oneDNN, where its sums are exact; sixteen bits by FBGEMM."""
    kind = SixteenBits if request.param == "halves" else EightBits
    monkeypatch.setattr(screening, "_kind", lambda: kind)
    if request.param == "arithmetic":
        monkeypatch.setattr(screening, "product", defined_product)
    elif request.param == "kernel" and not (torch.backends.mkldnn.is_available() and sums_are_exact()):
        pytest.skip("oneDNN's eight-bit sums are not exact here")
    elif request.param == "halves" and not multiplies_halves():
        pytest.skip("PyTorch without FBGEMM")
    with torch.inference_mode():
        yield


def matrix(*, bias: bool = False, seed: int = 0, rows: int = V) -> nn.Linear:
    torch.manual_seed(seed)
    linear = nn.Linear(D, rows, bias=bias)
    linear.weight.normal_(std=0.1).mul_(torch.rand(rows, 1).exp())
    linear.weight[:, 7].mul_(8)  # as trained matrices and states have it
    return linear


def states(n: int, *, seed: int = 1) -> Tensor:
    torch.manual_seed(seed)
    x = torch.randn(n, D) * torch.randn(n, 1).mul(4).exp()
    x[::3, 7] *= 30
    return x


def found(screen: Screen, x: Tensor, never: tuple[int, ...] = ()) -> int | None:
    got = screen(x[None], never)
    return None if got is None else int(got[0])


@pytest.mark.parametrize("bias", [False, True])
def test_the_largest_logit_of_exact_arithmetic_and_of_float32(bias: bool):
    linear, xs = matrix(bias=bias), states(400)
    screen, exact = Screen(linear), xs.double() @ linear.weight.double().T
    if bias:
        exact += linear.bias.double()
    tokens = [found(screen, x) for x in xs]
    proven = [i for i, token in enumerate(tokens) if token is not None]
    assert screen.n_found == len(proven) > 0.95 * len(xs)
    assert screen.n_found + screen.n_missed == len(xs)
    assert [tokens[i] for i in proven] == exact[proven].argmax(-1).tolist()
    for order in (torch.arange(D), torch.randperm(D), torch.arange(D).flip(0)):  # roundings of another order
        shuffled = nn.functional.linear(xs[:, order], linear.weight[:, order], linear.bias)
        assert [tokens[i] for i in proven] == shuffled[proven].argmax(-1).tolist()


def worst_of_the_matrix(scale: float) -> tuple[Tensor, Tensor]:
    """Rows whose every number is rounded by as much, in the direction of a state that is not rounded at all."""
    rows = torch.arange(12)[:, None]
    weight = torch.full((12, D), 0.45) + (torch.arange(D) * 7 + rows * 5) % 60
    x = torch.where(rows % 2 == 0, 1.0, -1.0).expand(12, D).clone()
    weight, weight[:, 0], x[:, 0] = scale * weight, scale * LEVELS, 0.0
    return weight, x


def worst_of_the_state(scale: float) -> tuple[Tensor, Tensor]:
    """Rows that are not rounded, in the direction of what is rounded away of a state."""
    step = 1 / (2 * LEVELS**2)
    x = (torch.arange(D) % 90) / LEVELS + (torch.arange(D) % 40) * step + 0.45 * step
    x[0] = 1.0
    signs = torch.tensor([[1.0], [-1.0]]).repeat(6, D)
    return scale * LEVELS * signs, x.expand(12, D)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("case", ["random", "worst of the matrix", "worst of the state"])
def test_the_bounds_hold_for_every_row(case: str, bias: bool):
    """Those of exact arithmetic, and of a float32 sum in the worst order (Higham 2002, section 3.1)."""
    linear, xs = matrix(bias=bias, rows=12), states(100, seed=5)
    if case != "random":
        linear.weight[:], xs = (worst_of_the_matrix if "matrix" in case else worst_of_the_state)(3e-3)
    screen = Screen(linear)
    for x in xs:
        _, bounds, _ = screen._bounds(x[None], ())
        weight, state = linear.weight.double(), x.double()
        exact = weight @ state + (0 if linear.bias is None else linear.bias.double())
        sums = exact + 1.01 * D * 2.0**-24 * weight.norm(dim=1) * state.norm()
        assert (bounds.double().repeat_interleave(screening.RUN) >= sums).all()


def test_what_float32_cannot_tell_apart_is_not_proven():
    linear, x = matrix(), states(1)[0]
    best = int((linear.weight @ x).argmax())
    for other in (0, V - 1, best ^ 1):
        changed = matrix()
        changed.weight[other] = changed.weight[best]
        assert found(Screen(changed), x) is None, "two equal rows"
        changed.weight[other] *= 1 - 2.0**-22
        assert found(Screen(changed), x) is None, "equal up to rounding"
        changed.weight[other] *= 1 - 1e-3
        assert found(Screen(changed), x) == best
    everything = matrix()
    everything.weight[:] = everything.weight[best]
    assert found(Screen(everything), x) is None


def test_a_run_beyond_those_that_are_computed_is_not_forgotten():
    """The likeliest token looks the least likely in eight bits, and just one run of others more is looked at."""
    (weight, x), n = worst_of_the_matrix(1.0), screening.RUN * screening.RUNS
    for rows in (n + 4, n + 40):
        linear = matrix(rows=rows)
        linear.weight[:] = -1.0
        others = torch.arange(n)
        # Of the same sum in eight bits: rounded down, all others up.
        linear.weight[:n] = weight[0].floor() + 0.55
        linear.weight[:n, 1] -= 0.3 * others  # so that the sums of two of them are told apart
        linear.weight[n + 1] = weight[0].floor() + 0.449
        linear.weight[n + 1, 1] += 10.5
        linear.weight[:, 0] = LEVELS
        exact = linear.weight.double() @ x[0].double()
        assert int(exact.argmax()) == n + 1
        assert found(Screen(linear), x[0]) in (n + 1, None)


@pytest.mark.parametrize(("rows", "chunk"), [*((rows, 501 * D) for rows in range(V - 1, V + 3)), (V, D), (V, 2000 * D)])
def test_every_row_is_found(rows: int, chunk: int, monkeypatch):
    """The first and the last of a chunk, of a run and of the matrix, also where all logits are negative."""
    monkeypatch.setattr(screening, "CHUNK", chunk)
    x = torch.ones(D)
    for best, least in itertools.product((0, 3, 4, 500, 501, 1001, rows - 2, rows - 1), (-2.0, 1.0)):
        linear = matrix(rows=rows)
        linear.weight[:] = least + 0.1 * torch.rand(rows, 1)
        linear.weight[best] = least + 0.5
        assert found(Screen(linear), x) == best


def test_where_it_applies(monkeypatch):
    monkeypatch.setattr(screening, "WORTH_SCREENING", 1)

    def applies(changed: Transformer) -> bool:
        return screening._screenable(changed) is not None

    assert applies(network().float())
    assert not applies(network())  # float64
    assert not applies(network().bfloat16())
    for name, value in (("soft_cap", 3.0), ("output", Unlike())):
        other = network().float()
        setattr(other.head, name, value)
        assert not applies(other)
    with torch.autocast("cpu", torch.bfloat16):
        assert not applies(network().float())
    torch.set_float32_matmul_precision("medium")
    try:
        assert not applies(network().float())
    finally:
        torch.set_float32_matmul_precision("highest")


class Unlike(nn.Linear):
    """A linear map with code of its own."""

    def __init__(self) -> None:
        super().__init__(16, 19)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, 1e38])
def test_what_is_not_finite_is_not_proven(value: float):
    linear, x = matrix(), states(1)[0]
    assert found(Screen(linear), torch.full((D,), value)) is None
    if value:
        some = x.clone()
        some[3] = value
        assert found(Screen(linear), some) is None
        for rows in ([5], list(range(0, V, 4))):
            broken = matrix()
            broken.weight[rows, 3] = value
            assert found(Screen(broken), x) in (None, int((broken.weight.double() @ x.double()).argmax()))


def test_banned_tokens():
    linear, x = matrix(bias=True), states(1, seed=2)[0]
    order = (linear.weight.double() @ x.double() + linear.bias.double()).argsort(descending=True).tolist()
    screen = Screen(linear)
    for n in (0, 1, 2, 50, V - 1):
        assert found(screen, x, tuple(order[:n])) in (order[n], None)
    assert found(screen, x, (order[0],)) == order[1]
    assert found(screen, x, tuple(order)) is None


# --- texts ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def early(monkeypatch) -> None:
    """Screens for small matrices, from the third step on."""
    monkeypatch.setattr(screening, "WORTH_SCREENING", 1)
    monkeypatch.setattr(screening, "PATIENCE", 1)
    monkeypatch.setattr(decoding, "PATIENCE", 3)
    monkeypatch.setattr(decoding, "STEADY", 2)
    for name in ("autotune", "recall_tuned"):
        monkeypatch.setattr(screening, name, lambda *_: "screened")


def screen_of(net: Transformer) -> Screen | None:
    return screening._kept.get(net.head.get_submodule("output"), (None, None))[1]


def written(net: Transformer, *, scored: bool, **settings: Any) -> Hypothesis:
    config = GenerationConfig.model_validate({"max_new_tokens": 30, "end_ids": (EOS,), "pad_id": PAD} | settings)
    source = None if net.encoder is None else [[5, 9, 3, 4]]
    prompts = [[BOS, 7]] if net.encoder is None else None
    return complete(net, prompts, source=source, config=config, bos_id=BOS, scored=scored)[0][0]


@pytest.mark.usefixtures("early")
@pytest.mark.parametrize(
    ("settings", "cross"),
    [
        ({}, True),
        ({"min_new_tokens": 30}, False),
        ({"banned_ids": (3, 4, 11, 400)}, False),
        ({"first_banned_ids": (9, 10, 11), "forced_last_id": 5}, True),
        ({"repetition_penalty": 1.3}, False),
        ({"no_repeat_ngram": 2}, True),
    ],
    ids=["plain", "long", "banned", "forced", "penalty", "ngram"],
)
def test_the_same_text(settings: dict[str, Any], cross: bool):
    for seed in range(2):
        net = network(cross=cross, seed=seed, ending=0.0).float().eval()
        whole = written(net, scored=True, **settings)
        assert screen_of(net) is None
        for _ in range(2):  # The second text has its screen from the start.
            text = written(net, scored=False, **settings)
            assert (text.tokens, text.reason) == (whole.tokens, whole.reason)
            assert math.isnan(text.log_prob)
        screen, takes_largest = screen_of(net), settings.keys().isdisjoint({"repetition_penalty", "no_repeat_ngram"})
        assert (screen is not None) == (takes_largest and text.length > 2)
        assert screen is None or screen.n_found > 0


@pytest.mark.usefixtures("early")
def test_the_whole_product_decides_what_is_not_proven():
    net = network().float().eval()
    weight, bias = (net.head.get_parameter(f"output.{name}") for name in ("weight", "bias"))
    with torch.no_grad():
        weight[10:], bias[10:] = weight[:9].clone(), bias[:9].clone()
    whole = written(net, scored=True, min_new_tokens=30)
    assert written(net, scored=False, min_new_tokens=30).tokens == whole.tokens
    assert (screen := screen_of(net)) is not None
    assert screen.n_missed > 0
    assert screen.n_found + screen.n_missed == 28


@pytest.mark.usefixtures("early")
def test_steps_that_cannot_be_screened_stay_recorded(monkeypatch):
    made: list[Recorded] = []

    class Counted(Recorded):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            made.append(self)

    monkeypatch.setattr(decoding, "Recorded", Counted)
    monkeypatch.setattr(decoding, "PATIENCE", 8)  # after the recording
    monkeypatch.setattr(screening, "screened", lambda *_, **__: None)
    written(network().float().eval(), scored=False, min_new_tokens=30)
    assert len(made) == 1


@pytest.mark.usefixtures("early")
def test_a_write_makes_another_screen():
    net = network().float().eval()
    written(net, scored=False, min_new_tokens=30)
    first = screen_of(net)
    net.head.get_parameter("output.weight").data.neg_()
    whole = written(net, scored=True, min_new_tokens=30)
    assert written(net, scored=False, min_new_tokens=30).tokens == whole.tokens
    assert screen_of(net) is not first
    decoding.forget(net)
    assert screen_of(net) is None


@pytest.mark.usefixtures("early")
def test_a_trace_and_a_hook_see_all_logits():
    net = network().float().eval()
    config = GenerationConfig(max_new_tokens=12, min_new_tokens=12, end_ids=(EOS,))
    events = generate(net, Tokens(torch.tensor([[1, 2, 3]])), config=config, scored=False)
    for _ in range(6):
        next(events)
    with trace(net) as seen:
        next(events)
    assert seen["head.logits"].isfinite().all()
    *_, last = events
    assert isinstance(last, Finished)
    whole = complete(net, [[1, 2, 3]], config=config)
    assert last.hypotheses[0][0].tokens == whole[0][0].tokens
    shapes: set[int] = set()
    net.head.register_forward_hook(lambda _, __, logits: shapes.add(logits.shape[-1]))
    complete(net, [[1, 2, 3]], config=config, scored=False)
    assert shapes == {19}


@pytest.mark.usefixtures("early")
def test_samples_and_batches_have_their_scores():
    net = network().float().eval()
    config = GenerationConfig(max_new_tokens=8, temperature=1.0, n_best=3)
    assert complete(net, [[BOS]], config=config, scored=False) == complete(net, [[BOS]], config=config)
    greedy, prompts = GenerationConfig(max_new_tokens=8), [[BOS], [BOS, 4]]
    scored = complete(net, prompts, config=greedy)
    assert tokens(complete(net, prompts, config=greedy, scored=False)) == tokens(scored)
    assert all(math.isfinite(row[0].log_prob) for row in scored)
    assert screen_of(net) is None


def test_a_trained_model(shared_data: Path, monkeypatch):
    folder = shared_data / "checkpoints" / "stories15M"
    if not folder.is_dir():
        pytest.skip("no checkpoint stories15M in the folder of real data")
    monkeypatch.setattr(screening, "PATIENCE", 1)
    for name in ("autotune", "recall_tuned"):
        monkeypatch.setattr(screening, name, lambda *_: "screened")
    net = clearhead.load(folder, dtype="float32").network
    config, prompt = GenerationConfig(max_new_tokens=25), [1, 9038, 2501, 263, 931]
    whole = complete(net, [prompt], config=config)
    assert complete(net, [prompt], config=config, scored=False)[0][0].tokens == whole[0][0].tokens
    assert (screen := screen_of(net)) is not None
    assert screen.n_missed < 0.05 * screen.n_found
