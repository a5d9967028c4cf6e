"""Finds the likeliest token of a greedy step without the whole product by the output matrix.

The matrix in eight or sixteen bits gives each logit approximately, from fewer bytes. The norms of what was rounded
away bound how far each is off, so only a few tokens can be the likeliest. Only their logits are computed in float32:
an exact maximum inner product search by bounds (Teflioudi et al. 2015, "LEMP").
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import cast
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.model import Transformer
from clearhead.model.fast.autotune import Run, autotune, recall_tuned
from clearhead.model.fast.int8 import (
    LEVELS,
    TINY,
    levels,
    low_byte,
    middle,
    multiplies_halves,
    packed_halves,
    prepacked,
    product,
    sums_are_exact,
)
from clearhead.model.fast.packing import fingerprint
from clearhead.model.fast.snapshot import obstacle
from clearhead.model.heads import LanguageHead
from clearhead.model.linear import LinearMap, effective_weight, is_plain, shared_copy

WORTH_SCREENING = 1 << 22
"""Smallest size of an output matrix, in numbers, for which screening may pay (docs/inference.md)."""
RUN, RUNS = 4, 32
"""Neighbouring tokens that share a bound, and the number of such runs whose logits are computed in float32."""
ROUNDING, SPARE = 2.0**-24, 64
"""Float32's relative rounding, and roundings of the bounds and of the eight-bit product, fewer than that."""
PATIENCE = 64
"""Greedy steps before a screen is made. About as many steps save as much time as making it takes."""
CHUNK = 1 << 17
"""Numbers that are rounded at once, so that they stay in the processor's cache."""


WAYS = dict.fromkeys(("screened", "whole"))


class Screen:
    """The likeliest token by an output matrix, where its logit is provably larger than all others.

    For a row w of the matrix, a state x, and w' and x' rounded (x to twice eight bits, or not at all),

        |w x - w' x'|  =  |(w - w') x + w' (x - x')|  <=  |w - w'| |x|  +  |w'| |x - x'|     (Cauchy and Schwarz)

    and a float32 sum of the d products, in any order, differs from w x by at most 1.01 d 2^-24 |w| |x| (Higham 2002,
    section 3.1). The token is proven if its logit exceeds all others by more than that: then the whole float32 product
    has the same largest logit, whatever order a kernel adds in.
    """

    def __init__(self, linear: nn.Linear) -> None:
        """Takes one or two bytes a number of the matrix, and reads rows of the matrix itself."""
        self.weight, self.bias = linear.weight.detach(), None if linear.bias is None else linear.bias.detach()
        v, d = self.weight.shape
        cells = -(-v // RUN) * RUN
        kind = _kind()
        assert kind is not None
        numbers = torch.zeros(cells, d, dtype=kind.dtype)
        scales, error, norm = torch.ones(cells), torch.zeros(cells), torch.zeros(cells)
        n = max(1, CHUNK // d)
        for at in range(0, v, n):
            some, to = self.weight[at : at + n], slice(at, min(at + n, v))
            numbers[to], scale = kind.rounded(some)
            rounded = numbers[to] * scale
            scales[to] = scale[:, 0]
            norm[to] = torch.maximum(some.norm(dim=1), rounded.norm(dim=1))
            error[to] = rounded.sub_(some).norm(dim=1)
        self.near = kind(numbers, scales)
        self.rounding = 1.01 * (d + SPARE) * ROUNDING
        self.error, self.norm = ((1 + self.rounding) * x.view(-1, RUN).amax(1) for x in (error, norm))
        self.largest_bias = 0.0 if self.bias is None else float(self.bias.abs().max())
        self.neighbours, self.beyond = torch.arange(RUN), range(v, cells)
        self.n_found = self.n_missed = 0
        """Steps in which the token was proven, and in which it was not."""

    def __call__(self, x: Tensor, never: Sequence[int] = ()) -> tuple[Tensor, Tensor] | None:
        """1 d -> 1 and 1: the token with the largest logit, leaving out `never`, and this logit; None if not proven."""
        runs, bounds, size = self._bounds(x, never)
        top = bounds.topk(min(RUNS + 1, len(bounds)))
        among, rest = top.indices[:RUNS], top.values[RUNS:]
        tokens = (among[:, None] * RUN + self.neighbours).flatten().clamp_(max=len(self.weight) - 1)
        bias = None if self.bias is None else self.bias[tokens]
        logits = F.linear(x, self.weight[tokens], bias)[0].masked_fill_(runs[among].flatten() == -torch.inf, -torch.inf)
        found = logits.topk(2)
        best, second, largest_norm = *found.values.tolist(), float(self.norm[among].amax())
        # Both sums of the best logit may round, and the sum of the other, whose norm is in its bound and bias is not.
        apart = self.rounding * (2 * largest_norm * size + 3 * self.largest_bias)
        if all(best - apart > other for other in (second + apart, *rest.tolist())):  # Not with NaN or infinity.
            self.n_found += 1
            return tokens[found.indices[:1]], found.values[:1]
        self.n_missed += 1
        return None

    def _bounds(self, x: Tensor, never: Sequence[int]) -> tuple[Tensor, Tensor, float]:
        """1 d -> near logits in runs, what no float32 sum of a run's logits exceeds, and the norm of x."""
        near, lost = self.near(x)
        if self.bias is not None:
            near[:, : len(self.bias)] += self.bias
        size, away = ((1 + self.rounding) * float(one.norm()) for one in (x, lost))
        out = torch.tensor([*self.beyond, *(token for token in never if token < len(self.weight))], dtype=torch.long)
        runs = near.index_fill_(1, out, -torch.inf).view(-1, RUN)
        # Both sums of a product may round.
        bounds = runs.amax(1).add_(self.error, alpha=size).add_(self.norm, alpha=away + 2 * self.rounding * size)
        return runs, bounds, size


class EightBits:
    """A matrix in eight bits, for processors that add up their products exactly."""

    dtype = torch.int8

    def __init__(self, numbers: Tensor, scale: Tensor) -> None:
        self.packed, self.scale = prepacked(numbers), scale
        self.offset = torch.zeros(len(numbers), dtype=torch.long)

    @staticmethod
    def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
        """N d -> n d, which keeps its values as `dtype`, and its scale n 1."""
        scale = (weight.abs().amax(1, keepdim=True) / LEVELS).clamp_min_(TINY)
        return (weight / scale).round_(), scale

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """1 d -> 1 v: the product, and 1 d: what was rounded away of x.

        Two rows take little longer than one, so the second row has what was rounded away of the first.
        """
        first = x.abs().amax(-1, keepdim=True).clamp_min_(TINY)
        second = first / (2 * LEVELS)
        high = levels(x, first)
        rest = torch.addcmul(x, high - middle(x.shape[-1]), first, value=-1 / LEVELS)
        low = levels(rest, second)
        lost = torch.addcmul(rest, low - middle(x.shape[-1]), second, value=-1 / LEVELS)
        both = product(low_byte(torch.cat([high, low])), self.packed, self.scale, self.offset)
        return torch.addcmul(both[:1].mul_(first), both[1:], second), lost


class SixteenBits:
    """A matrix in float16, by FBGEMM's product with float32 rows: no number of x is rounded."""

    dtype = torch.float16

    def __init__(self, numbers: Tensor, _scale: Tensor) -> None:
        self.packed = packed_halves(numbers)

    @staticmethod
    def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
        """N d -> n d, which is rounded as `dtype`, and ones, n 1. Too large numbers become infinite."""
        return weight, torch.ones(len(weight), 1)

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """1 d -> 1 v: the product, and 1 d: what was rounded away of x, nothing."""
        return torch.ops.quantized.linear_dynamic_fp16(x, self.packed), torch.zeros_like(x)


# --- in a network -----------------------------------------------------------------------------------------------------


class _Unread(LinearMap):
    """The states that an output matrix would read, in place of logits."""

    def __init__(self, output: nn.Linear | LinearMap) -> None:
        super().__init__(output.in_features, output.out_features, None)
        self.output = output

    def effective_weight(self) -> Tensor:
        return effective_weight(self.output)

    def forward(self, x: Tensor) -> Tensor:
        return x


@dataclass(frozen=True)
class Screened:
    """A network without its output matrix, and the matrix with its screen."""

    network: Transformer
    """Gives the states that the output matrix reads."""
    output: nn.Linear | LinearMap
    screen: Screen

    def logits(self, states: Tensor, never: Sequence[int]) -> Tensor:
        """1 d -> 1 v: the logits, -inf for those that are provably not the largest of all without `never`."""
        found = self.screen(states, never)
        if found is None:
            return self.output(states)
        token, logit = found
        return states.new_full((1, self.output.out_features), -torch.inf).index_fill_(1, token, float(logit))


_kept: WeakKeyDictionary[nn.Module, tuple[int, Screen]] = WeakKeyDictionary()
"""The screen of each output matrix that still exists, with the fingerprint of the matrix that it was made from."""
_steps: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
"""Greedy steps so far without a screen, of each output matrix."""


def due(network: Transformer) -> bool:
    """Counts a greedy step without a screen. Returns True if there were enough of them to make one."""
    output = _output(network)
    _steps[output] = _steps.get(output, 0) + 1
    return _steps[output] >= PATIENCE


def screened(network: Transformer, fast: Transformer, *, prepare: bool) -> Screened | None:
    """The network with a screen, if greedy steps are then quicker on this machine, which is timed once; else None.

    `fast` is the copy of `network` that reads. The screen holds the matrix as it is now. It is kept for the next call,
    which compares a fingerprint of every byte and makes a new one of what has changed. `forget` frees it. Without
    `prepare`, it is None if that takes timing or a new screen.
    """
    linear = None if obstacle(network) else _screenable(network)
    if linear is None or recall_tuned(_question(linear), WAYS) == "whole" or not (prepare or linear in _kept):
        return None
    mark, output = fingerprint(linear.weight.detach()), _output(fast)
    known, screen = _kept.get(linear, (None, None))
    if screen is None or known != mark:
        if not prepare:
            return None
        screen = Screen(linear)
    x = linear.weight.detach()[:1]
    runs: dict[str, Run] = {"whole": lambda: output(x).argmax(-1), "screened": lambda: screen(x)}
    if prepare and autotune(_question(linear), {way: lambda way=way: runs[way] for way in WAYS}) == "whole":
        return None
    _kept[linear] = mark, screen
    unread = shared_copy(fast, {output: _Unread(output)})
    return Screened(cast("Transformer", unread), output, screen)


def forget(network: Transformer) -> None:
    """Frees the screen of `network`."""
    for module in network.modules():
        _kept.pop(module, None)


def _question(linear: nn.Linear) -> str:
    return f"greedy token by {linear.out_features} x {linear.in_features}"


def _screenable(network: Transformer) -> nn.Linear | None:
    """The output matrix, if its product can be screened: a large plain one in exact float32 on a CPU."""
    head = network.head
    if not isinstance(head, LanguageHead) or head.soft_cap is not None or not is_plain(head.output):
        return None
    linear = cast("nn.Linear", head.output)
    weight = linear.weight
    fits = weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.numel() >= WORTH_SCREENING
    exact = torch.get_float32_matmul_precision() == "highest" and not torch.is_autocast_enabled("cpu")
    return linear if fits and exact and _kind() is not None else None


@cache
def _kind() -> type[EightBits | SixteenBits] | None:
    """How this processor multiplies by a rounded matrix fast, if it can."""
    if torch.backends.mkldnn.is_available() and sums_are_exact():
        return EightBits
    return SixteenBits if multiplies_halves() else None


def _output(network: Transformer) -> nn.Linear | LinearMap:
    assert isinstance(network.head, LanguageHead)
    return network.head.output
