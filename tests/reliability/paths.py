"""`python -m tests.reliability.paths`: networks with code of another's, and changes between two tokens.

Fast paths write what the plain path writes.
"""

import itertools
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead import config as c
from clearhead.generation import Finished, decoding, generate
from clearhead.generation.fast import screening
from clearhead.generation.paths import Paths
from clearhead.model import Tokens, Transformer
from clearhead.model.fast import packing
from clearhead.recipe.generation import GenerationConfig
from tests.reliability import Counted
from tests.reliability.others_code import FORMS, block, effects

N_TOKENS, AT = 48, 24
"""Tokens of a text, and the one after which a network changes."""
VOCAB = 31
Change = Callable[[Transformer, ExitStack], object]


def new_network(seed: int, **changes: Any) -> Transformer:
    """Two blocks, whose texts do not repeat themselves."""
    torch.manual_seed(seed)
    settings: dict[str, Any] = {"d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 32, "positions": c.Rotary()}
    stack = c.StackConfig(input=c.TokenInput(vocab_size=VOCAB), dropout=0.2, **(settings | changes))
    network = Transformer(c.ModelConfig(decoder=stack, head=c.LanguageHead(tied=False, bias=True))).eval()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            is_scale = parameter.ndim == 1 and name.endswith("weight")
            parameter.normal_(1.0 if is_scale else 0.0, 0.5)
        network.head.get_parameter("output.weight").mul_(3)
    return network


@contextmanager
def plainly() -> Iterator[None]:
    """No fast path applies."""
    with mock.patch.object(decoding, "obstacle", return_value="asked"):
        yield


def _fast_way(_: str, ways: Mapping[str, object]) -> str:
    """The faster of the ways, in place of timing them."""
    return "packed" if "packed" in ways else "screened"


@contextmanager
def eagerly(*, packs: bool) -> Iterator[None]:
    """Fast paths begin after few tokens, with `packs` also those of large networks."""
    with ExitStack() as changed:
        change = changed.enter_context
        change(mock.patch.object(decoding, "STEADY", 1))
        if packs:
            for module in (packing, screening):
                for name in ("autotune", "recall_tuned"):
                    change(mock.patch.object(module, name, _fast_way))
            change(mock.patch.object(packing, "WORTH_PACKING", 1))
            change(mock.patch.object(screening, "WORTH_SCREENING", 1))
            change(mock.patch.object(decoding, "PATIENCE", 4))
            change(mock.patch.object(screening, "PATIENCE", 4))
        yield


def text(
    network: Transformer, change: Change | None = None, *, rows: int = 1, draft: bool = False, temperature: float = 0.0
) -> tuple[list[int], Paths]:
    """The tokens of a text that a change meets in its middle, and how they were computed."""
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - the state that others' code uses
    random.seed(0)
    prompts = Tokens(torch.arange(1, 1 + 3 * rows).view(rows, 3))
    config = GenerationConfig(max_new_tokens=N_TOKENS, min_new_tokens=N_TOKENS, end_ids=(0,), temperature=temperature)
    events = generate(network, prompts, config=config, draft="lookup" if draft else None, scored=False)
    with ExitStack() as lasting:
        for i, event in enumerate(events):
            if isinstance(event, Finished):
                return [token for found in event.hypotheses for token in found[0].tokens], events.paths
            if i == AT and change is not None:
                change(network, lasting)
    raise AssertionError


# --- code of another's ------------------------------------------------------------------------------------------------

USES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 0.9},
    "draft": {"draft": True},
    "two": {"rows": 2},
}


@dataclass(frozen=True)
class Case:
    """A network with code of another's, and a text that it writes."""

    number: int
    form: str
    effect: str
    use: str
    file: Path

    def written(self, *, is_plain: bool, applies: bool = True) -> list[int]:
        """The tokens, by the plain path or with all fast ones."""
        network = new_network(self.number, activation="gelu", norm=("layer", "rms")[self.number % 2])
        use = {name: value for name, value in USES[self.use].items() if not is_plain or name != "draft"}
        with ExitStack() as lasting:
            lasting.enter_context(plainly() if is_plain else eagerly(packs=self.number % 4 > 1))
            if applies:
                FORMS[self.form](network, lasting, effects(self.file)[self.effect]())
            return text(network, **use)[0]


def custom(file: Path, n: int) -> Iterator[tuple[str, bool, Callable[[], bool]]]:
    """Names of n networks with code of another's; whether both paths wrote the same, and whether the code matters."""
    kinds = [(form, effect) for effect in effects(file) for form in FORMS]
    random.Random(3).shuffle(kinds)
    for i, (form, effect) in enumerate(itertools.islice(itertools.cycle(kinds), n)):
        case = Case(i, form, effect, [*USES][(i + i // len(kinds)) % len(USES)], file)
        expected = case.written(is_plain=True)
        found = case.written(is_plain=False)

        def matters(case: Case = case, expected: list[int] = expected) -> bool:
            return expected != case.written(is_plain=True, applies=False)

        yield f"{form}, {effect}, {case.use}", found == expected, matters


# --- changes between two tokens ---------------------------------------------------------------------------------------


def _written(network: Transformer, write: Callable[[Tensor], object], *names: str) -> None:
    with torch.no_grad():
        for name in names or DENSE:
            write(network.get_parameter(name))


DENSE = ("decoder.blocks.1.ffn.up.weight", "decoder.blocks.0.attn.out.weight", "head.output.weight")


def _new(network: Transformer, *names: str) -> None:
    for name in names or DENSE:
        path, _, last = name.rpartition(".")
        old = network.get_parameter(name)
        setattr(network.get_submodule(path), last, nn.Parameter(-old.detach().clone()))


def _data(parameter: Tensor, value: Tensor) -> None:
    parameter.data = value


def _loaded(network: Transformer, *, assign: bool) -> None:
    state = {name: value.clone() * -1 for name, value in network.state_dict().items()}
    network.load_state_dict(state, assign=assign)


def _stepped(network: Transformer) -> None:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter) * torch.arange(len(parameter)).view(-1, *[1] * (parameter.ndim - 1))
    optimizer.step()
    optimizer.zero_grad()


def _replaced(network: Transformer, at: str, new: Callable[[Any], nn.Module]) -> None:
    network.set_submodule(at, new(network.get_submodule(at)))


def _linear(old: nn.Linear) -> nn.Linear:
    made = nn.Linear(old.in_features, old.out_features)
    with torch.no_grad():
        made.weight.copy_(old.weight.flip(0))
    return made


def _config(network: Transformer, lasting: ExitStack) -> None:
    del lasting
    residual = block(network).residual
    residual.config = residual.config.model_copy(update={"branch_scale": 0.2})


def _set(owner: Callable[[Transformer], Any], name: str, value: Any) -> Change:
    return lambda network, _: setattr(owner(network), name, value)


def _patched(owner: object, name: str, new: Callable[..., Any]) -> Change:
    return lambda _, lasting: lasting.enter_context(mock.patch.object(owner, name, new))


def _form(form: str) -> Change:
    return lambda network, lasting: FORMS[form](network, lasting, lambda x: torch.from_numpy(np.tanh(x.numpy() * 2.0)))


def _negated(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        module.weight.data.neg_()


def _swapped(network: Transformer, lasting: ExitStack) -> None:
    del lasting
    blocks: Any = network.get_submodule("decoder.blocks")
    blocks[0], blocks[1] = blocks[1], blocks[0]


def _block_hook(network: Transformer, lasting: ExitStack) -> None:
    hook = block(network).register_forward_hook(lambda _, __, ___, out: -out, with_kwargs=True)
    lasting.callback(hook.remove)


def _autocast(network: Transformer, lasting: ExitStack) -> None:
    del network
    lasting.enter_context(torch.autocast("cpu", torch.bfloat16))


def _writes(write: Callable[[Tensor], object], *names: str) -> Change:
    return lambda network, _: _written(network, write, *names)


CHANGES: dict[str, Change] = {
    "weight.data =": _writes(lambda p: _data(p, -p.data)),
    "weight.data = of the same memory, turned": _writes(
        lambda p: _data(p, p.data.T), "decoder.blocks.0.attn.out.weight"
    ),
    "weight.data.mul_": _writes(lambda p: p.data.mul_(-1)),
    "weight.data[:] =": _writes(lambda p: p.data.__setitem__(slice(None), p.data.flip(0))),
    "weight.mul_": _writes(lambda p: p.mul_(-1)),
    "weight[3] =": _writes(lambda p: p.__setitem__(3, 9.0)),
    "a cell of a weight": _writes(lambda p: p.__setitem__((3, 1), 99.0)),
    "weight.numpy()[:] =": _writes(lambda p: p.detach().numpy().__imul__(-1)),
    "weight.set_": _writes(
        lambda p: p.set_(p.detach().neg())  # pyrefly: ignore[bad-argument-type]
    ),
    "a row of the token table": _writes(lambda p: p.data.neg_(), "decoder.embed.tokens.weight"),
    "a norm's weight.data.mul_": _writes(lambda p: p.data.mul_(-1), "decoder.blocks.1.ffn_norm.weight"),
    "a norm's new weight": lambda n, _: _new(n, "decoder.blocks.1.ffn_norm.weight"),
    "a new Parameter": lambda n, _: _new(n),
    "_parameters[name] =": lambda n, _: block(n).ffn.up._parameters.update(weight=-block(n).ffn.up.weight.detach()),
    "a bias removed": lambda n, _: setattr(block(n).ffn.down, "bias", None),
    "a bias written": _writes(lambda p: p.data.add_(torch.arange(len(p)).to(p)), "head.output.bias"),
    "load_state_dict": lambda n, _: _loaded(n, assign=False),
    "load_state_dict(assign=True)": lambda n, _: _loaded(n, assign=True),
    "an optimizer's step": lambda n, _: _stepped(n),
    "apply": lambda n, _: n.apply(_negated),
    "a linear map replaced": lambda n, _: _replaced(n, "decoder.blocks.0.ffn.down", _linear),
    "the output replaced": lambda n, _: _replaced(n, "head.output", _linear),
    "a map of another's": _form("map"),
    "a module of another's": _form("module"),
    "blocks exchanged": _swapped,
    "a block of no effect": lambda n, _: _replaced(n, "decoder.blocks.1.ffn", lambda _: nn.Identity()),
    "a hook": _form("hook"),
    "a pre-hook": _form("pre_hook"),
    "a hook with keywords": _block_hook,
    "a global hook": _form("global_hook"),
    "a forward of an object": _form("forward"),
    "a forward of a class": _form("class"),
    "nn.Linear.forward": _form("linear_class"),
    "a method of a class": _form("method"),
    "a function of a module": _form("function"),
    "a function of PyTorch": _patched(F, "layer_norm", lambda x, *_: x * 2.0),
    "F.linear": _patched(F, "linear", lambda x, w, b=None: -(x @ w.T) if b is None else b - x @ w.T),
    "a parametrization": _form("parametrization"),
    "a function mode": _form("function_mode"),
    "a dispatch mode": _form("dispatch_mode"),
    "an attribute: scale": _set(lambda n: block(n).attn, "scale", 3.0),
    "an attribute: eps": _set(lambda n: block(n).ffn_norm, "eps", 2.0),
    "an attribute: act": _set(lambda n: block(n).ffn, "act", torch.sin),
    "an attribute: soft_cap": _set(lambda n: n.head, "soft_cap", 0.5),
    "a config": _config,
    "autocast": _autocast,
    "training mode": lambda n, _: n.train(),
}


def changed(n: int) -> Iterator[tuple[str, bool, bool, Paths]]:
    """Names of changes; whether both paths wrote the same, whether the change mattered, and the paths."""
    cases = list(itertools.product(CHANGES, ({"packs": False}, {"packs": True})))
    random.Random(5).shuffle(cases)
    for name, how in itertools.islice(itertools.cycle(cases), n):
        texts: list[tuple[list[int], Paths]] = []
        for path, change in ((plainly(), CHANGES[name]), (nullcontext(), CHANGES[name]), (plainly(), None)):
            with eagerly(**how), path:
                texts.append(text(new_network(7, activation="gelu"), change))
        (expected, _), (found, used), (unchanged, _) = texts
        yield f"{name}, {how}", found == expected, expected != unchanged, used


def others_code(folder: Path, n: int = 200) -> Counted:
    """Networks with code of another's, and changes of all kinds, in networks that record, pack and screen."""
    broken, mattered = list[str](), 0
    for name, is_equal, matters in custom(folder / "counted", n):
        broken += [] if is_equal else [name]
        mattered += matters()
    n_changes, fast = max(1, n * len(CHANGES) * 2 // 200), 0
    for name, is_equal, matters, paths in changed(n_changes):
        broken += [] if is_equal else [name]
        mattered += matters
        fast += paths.recorded > 0
    for name in broken:
        print("  other tokens:", name)
    tried = n + n_changes
    said = f"{n} networks with code of another's, {n_changes} changes of {len(CHANGES)} kinds in mid-stream"
    said += (
        f": {tried - len(broken)} of {tried} token-equal to the plain path ({mattered} differ from the network as it"
    )
    return Counted(tried, len(broken), said + f" was, {fast} were recorded before they changed)")


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        print(others_code(Path(folder)).said)
