"""Code of another's in a network: what it may do beside PyTorch's operations, and the forms in which it gets there."""

import itertools
import os
import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from clearhead.model import Transformer
from clearhead.model import feedforward as feedforward_module
from clearhead.model.attention import Attention
from clearhead.model.feedforward import FeedForward
from clearhead.model.linear import LinearMap

Effect = Callable[[Tensor], Tensor]


def block(network: Transformer) -> Any:
    assert network.decoder is not None
    return network.decoder.blocks[1]


_counted: list[int] = []


def effects(file: Path) -> dict[str, Callable[[], Effect]]:
    """What Python code may do beside operations of PyTorch. Each call makes one anew."""

    def counter() -> Effect:
        numbers = itertools.count()
        return lambda x: x * (1 + 0.3 * (next(numbers) % 5))

    def of_global() -> Effect:
        _counted.clear()

        def effect(x: Tensor) -> Tensor:
            _counted.append(len(_counted))
            return x * (1 + 0.2 * (len(_counted) % 7))

        return effect

    def of_file() -> Effect:
        file.write_text("0")

        def effect(x: Tensor) -> Tensor:
            n = int(file.read_text()) + 1
            file.write_text(str(n))
            return x * (1 + 0.3 * (n % 3))

        return effect

    def of_environment() -> Effect:
        os.environ["CLEARHEAD_TEST_EFFECT"] = "0"

        def effect(x: Tensor) -> Tensor:
            n = int(os.environ["CLEARHEAD_TEST_EFFECT"]) + 1
            os.environ["CLEARHEAD_TEST_EFFECT"] = str(n)
            return x + 0.5 * (n % 4)

        return effect

    def remembered() -> Effect:
        seen: list[Tensor] = []

        def effect(x: Tensor) -> Tensor:
            seen.append(x.detach())
            return x + 0.5 * seen[len(seen) // 2].mean() + 0.1 * len(seen[-3:])

        return effect

    def on_numbers() -> Effect:
        return lambda x: x * 1.5 if float(x.sum()) > 0 else x * 0.5

    return {
        "numpy": lambda: lambda x: torch.from_numpy(np.tanh(x.detach().numpy() * 1.7)),
        "noise": lambda: lambda x: x + 0.5 * torch.randn(x.shape[-1]),
        "numpy's noise": lambda: lambda x: x * float(np.random.rand() + 0.5),  # noqa: NPY002
        "random": lambda: lambda x: x * (0.5 + random.random()),
        "counter": counter,
        "global": of_global,
        "file": of_file,
        "environment": of_environment,
        "remembered": remembered,
        "numbers": on_numbers,
    }


class Custom(LinearMap):
    """The map of another's, as docs/inference.md offers it."""

    def __init__(self, linear: nn.Linear, effect: Effect) -> None:
        super().__init__(linear.in_features, linear.out_features, linear.bias)
        self.linear, self.effect = linear, effect

    def effective_weight(self) -> Tensor:
        return self.linear.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.effect(self.linear(x))


class Wrapped(nn.Module):
    """A module around another."""

    def __init__(self, inner: nn.Module, effect: Effect) -> None:
        super().__init__()
        self.inner, self.effect = inner, effect

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.effect(self.inner(*args, **kwargs))


class Through(nn.Module):
    """A parametrization."""

    def __init__(self, effect: Effect) -> None:
        super().__init__()
        self.effect = effect

    def forward(self, x: Tensor) -> Tensor:
        return self.effect(x)


class Activations(TorchFunctionMode):
    """A mode that sees PyTorch's functions."""

    def __init__(self, effect: Effect) -> None:
        super().__init__()
        self.effect = effect

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        return self.effect(found) if func is F.gelu else found


class Operations(TorchDispatchMode):
    """A mode that sees operations."""

    def __init__(self, effect: Effect) -> None:
        super().__init__()
        self.effect = effect

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        return self.effect(found) if func is torch.ops.aten.gelu.default else found


def put_map(network: Transformer, lasting: ExitStack, effect: Effect) -> None:
    del lasting
    attn = block(network).attn
    attn.out = Custom(attn.out, effect)


def put_output(network: Transformer, lasting: ExitStack, effect: Effect) -> None:
    del lasting
    network.head.output = Custom(network.head.output, effect)  # pyrefly: ignore


def put_module(network: Transformer, lasting: ExitStack, effect: Effect) -> None:
    del lasting
    last = block(network)
    last.ffn = Wrapped(last.ffn, effect)


def put_hook(network: Transformer, lasting: ExitStack, effect: Effect) -> None:
    lasting.callback(block(network).ffn.register_forward_hook(lambda _, __, out: effect(out)).remove)


def put_pre_hook(network: Transformer, lasting: ExitStack, effect: Effect) -> None:
    hook = block(network).ffn_norm.register_forward_pre_hook(lambda _, args: (effect(args[0]), *args[1:]))
    lasting.callback(hook.remove)


def put_global_hook(network: Transformer, lasting: ExitStack, effect: Effect) -> None:
    del network

    def hook(module: nn.Module, _: Any, out: Any) -> Any:
        return effect(out) if isinstance(module, FeedForward) else out

    lasting.callback(nn.modules.module.register_module_forward_hook(hook).remove)


def put_forward(network: Transformer, lasting: ExitStack, effect: Effect) -> None:
    del lasting
    ffn = block(network).ffn
    own = ffn.forward
    ffn.forward = lambda x: effect(own(x))  # pyrefly: ignore


def put_class(network: Transformer, lasting: ExitStack, effect: Effect) -> None:
    del network
    own = FeedForward.forward
    lasting.enter_context(mock.patch.object(FeedForward, "forward", lambda self, x: effect(own(self, x))))


def put_linear_class(network: Transformer, lasting: ExitStack, effect: Effect) -> None:
    del network
    own = nn.Linear.forward
    lasting.enter_context(mock.patch.object(nn.Linear, "forward", lambda self, x: 0.5 * effect(own(self, x))))


def put_method(network: Transformer, lasting: ExitStack, effect: Effect) -> None:
    del network
    own = Attention.combine
    lasting.enter_context(mock.patch.object(Attention, "combine", lambda self, z, at: effect(own(self, z, at))))


def put_function(network: Transformer, lasting: ExitStack, effect: Effect) -> None:
    del network
    own = feedforward_module.dropout
    lasting.enter_context(mock.patch.object(feedforward_module, "dropout", lambda x, *rest: effect(own(x, *rest))))


def put_parametrization(network: Transformer, lasting: ExitStack, effect: Effect) -> None:
    del lasting
    parametrize.register_parametrization(block(network).ffn.down, "weight", Through(effect), unsafe=True)


def put_function_mode(network: Transformer, lasting: ExitStack, effect: Effect) -> None:
    del network
    lasting.enter_context(Activations(effect))


def put_dispatch_mode(network: Transformer, lasting: ExitStack, effect: Effect) -> None:
    del network
    lasting.enter_context(Operations(effect))


FORMS = {name.removeprefix("put_"): form for name, form in globals().items() if name.startswith("put_")}
