"""Writes by a recording of one step: its tensor operations in a flat list, without the Python code between them.

One step of a decoder calls some hundred small functions between its large products, and Python and the allocation of
results take longer than what they compute. So a step is recorded in a cache of fixed size, where all steps have the
same shapes. Each later step repeats the recorded operations on the same memory.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from clearhead.model import Tokens, Transformer
from clearhead.model.block import Memory
from clearhead.model.cache import Cache, FixedCache
from clearhead.model.experts import Mixture
from clearhead.model.fast.fused_qkv import FusedQKVPart
from clearhead.model.fast.int8 import RoundedRows
from clearhead.model.linear import shared_copy

ROOM, LEAST_ROOM, MOST_ROWS = 256, 64, 8
"""Cells of all rows together, and of each, by which the room of a recording grows, and the most rows that are recorded.
Attention goes over empty cells, too, and for many rows that takes longer than what a recording saves."""
CHECKED = 256
"""One of so many steps is compared with the network's own."""
Run = Callable[[], object]


class CannotRecordError(RuntimeError):
    """A step depends on numbers that it computes."""


class NotRepeatedError(RuntimeError):
    """A recorded step has other logits than the network."""


class Recorded:
    """The decoder's steps after a prefilled cache, one token a row, while the rows stay the same."""

    def __init__(self, network: Transformer, tokens: Tokens, memory: Memory | None, past: Cache, *, room: int) -> None:
        """Reads these tokens and records the operations. Raises CannotRecordError if they cannot be repeated.

        What is computed from weights alone is repeated too, so that a write to a weight changes the next step.
        """
        self.network, self.memory = network, memory
        # Not in inference mode, which would hide of which operations a composite one consists.
        with torch.inference_mode(False), torch.no_grad():
            self.cache = FixedCache.of(past, room)
            self.room, self.length = room, past.length + 1
            self.ids = tokens.ids.clone()
            given = [self.ids, self.cache.at, *self.cache.tensors]
            recorder = _Recorder([*given, *network.parameters(), *network.buffers()])
            with recorder:
                logits = recorder.followed(network).decode(Tokens(self.ids), memory, self.cache)
            self.runs, self.logits = recorder.runs(logits), logits

    @property
    def left(self) -> int:
        """Steps for which there are cells."""
        return self.room - self.length

    def __call__(self, tokens: Tokens) -> Tensor:
        """n 1 -> n 1 v: logits after one more token of each row. The next call overwrites them.

        Every `CHECKED` steps the network reads the token as well. Raises NotRepeatedError if its logits are others;
        the cache is then as before.
        """
        assert self.left
        self.length += 1
        self.ids.copy_(tokens.ids)
        is_checked = self.length % CHECKED == 0
        before = [[x.clone() for x in block.mix.values] for block in self.cache.blocks if is_checked]
        for run in self.runs:
            run()
        if is_checked:
            self.take_back(before)
            if not _is_near(self.logits, self.network.decode(Tokens(self.ids), self.memory, self.cache)):
                self.take_back(before)
                raise NotRepeatedError
        return self.logits

    def take_back(self, states: list[list[Tensor]]) -> None:
        """Takes back a step, before which these were the states of the blocks."""
        self.cache.at -= 1
        for block, values in zip(self.cache.blocks, states, strict=True):
            block.mix.keep(*values)


def room_for(rows: int, length: int, most: int) -> int:
    """The number of cells for rows that have `length` tokens now and may have `most` in the end."""
    step = max(LEAST_ROOM, ROOM // rows)
    return min(most, -(-(length + max(step // 2, length // 8)) // step) * step)


def _is_near(found: Tensor, expected: Tensor) -> bool:
    """Returns True if two results of the same computation are equal up to rounding."""
    gap = (found - expected).abs().amax()
    return bool(gap <= torch.finfo(expected.dtype).eps ** 0.5 * expected.abs().amax())


# --- the recording ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Call:
    """One operation as it was called, with its results."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[Tensor, ...]
    writes: bool = False
    """Whether the operation changes its arguments."""

    @property
    def reads(self) -> set[int]:
        """The memory of its arguments."""
        return {_memory(x) for x in _tensors((*self.args, *self.kwargs.values()))}


class _Recorder(TorchDispatchMode):
    """Lists the operations that depend on tensors which change from step to step."""

    def __init__(self, changing: Sequence[Tensor]) -> None:
        super().__init__()
        self.changing = {_memory(x) for x in changing}
        self.calls: list[_Call] = []
        self.kept: list[Tensor] = []
        """All results, so that no memory is used twice while recording."""
        self.inside = False
        """Whether a part runs that is repeated as a whole."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # To tell PyTorch's compiler that it should not follow would import it, which takes a second.

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        kwargs = kwargs or {}
        if self.inside:
            return func(*args, **kwargs)
        if writes := func._schema.is_mutable:
            self.restore(_Call(func, args, kwargs, ()))
        found = func(*args, **kwargs)
        call = _Call(func, args, kwargs, _tensors((found,)), writes)
        if self.note(call) and _shape_depends_on_numbers(call):
            raise CannotRecordError(str(func))
        return found

    def restore(self, call: _Call) -> None:
        """Lists the copies that restore, in each step, the constants into which a call writes changing numbers."""
        if self.changing.isdisjoint(call.reads):
            return
        for argument, x in zip(call.function._schema.arguments, call.args, strict=False):
            is_written = argument.alias_info is not None and argument.alias_info.is_write
            if is_written and isinstance(x, Tensor) and _memory(x) not in self.changing:
                self.calls.append(_Call(torch.ops.aten.copy_.default, (x, x.clone()), {}, (x,), writes=True))

    def note(self, call: _Call) -> bool:
        """Returns True if the call reads what changes from step to step. Adds such a call, unless it makes a view."""
        self.kept += call.results
        if self.changing.isdisjoint(reads := call.reads):
            return False
        results = {_memory(x) for x in call.results}
        if call.writes or not results <= reads:
            self.changing |= results
            self.calls.append(call)
        return True

    def followed(self, network: Transformer) -> Transformer:
        """A copy of the network in which each part that reads numbers is one call."""
        instead: dict[nn.Module, nn.Module] = {m: _Whole(m, self) for m in network.modules() if _reads_numbers(m)}
        return cast("Transformer", shared_copy(network, instead)) if instead else network

    def runs(self, last: Tensor) -> list[Run]:
        """The functions that repeat the calls, up to the tensor `last`."""
        needed, found, known = {_memory(last)}, list[Run](), dict[object, int]()
        for call in reversed(self.calls):
            if call.writes or needed & {_memory(x) for x in call.results}:
                results = [x if _memory(x) in needed else None for x in call.results]
                needed |= call.reads
                found.append(_repeated(call, results, known))
        return found[::-1]


class _Whole(nn.Module):
    """A part of a network whose Python code depends on numbers, as one call."""

    def __init__(self, part: nn.Module, recorder: _Recorder) -> None:
        super().__init__()
        self.part, self.recorder = part, recorder

    def forward(self, x: Tensor) -> Tensor:
        """Computes what the part computes."""
        self.recorder.inside = True
        try:
            found = self.part(x).clone()
        finally:
            self.recorder.inside = False
        self.recorder.note(_Call(self.part, (x,), {}, (found,)))
        return found


def _reads_numbers(part: nn.Module) -> bool:
    """Returns True if the Python code of a part depends on numbers that it computes."""
    part = part.fused.module if isinstance(part, FusedQKVPart) else part
    return isinstance(part, RoundedRows | Mixture)


def _tensors(values: Iterable[object]) -> tuple[Tensor, ...]:
    """The tensors among these values and in their lists."""
    return tuple(x for value in values for x in _listed(value) if isinstance(x, Tensor))


def _listed(value: Any) -> Iterable[Any]:
    return value if isinstance(value, Sequence) else (value,)


def _memory(x: Tensor) -> int:
    """An identifier of a tensor's memory. Packed matrices have no address, and never change."""
    return id(x) if x.is_mkldnn else x.untyped_storage()._cdata


def _shape_depends_on_numbers(call: _Call) -> bool:
    tags = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(call.function.tags)
    if call.function is torch.ops.aten.index.Tensor:  # It does if it is asked by masks, and not by numbers.
        return any(x is not None and x.dtype == torch.bool for x in call.args[1])
    return bool(tags)


# --- a call again -----------------------------------------------------------------------------------------------------

IN_PLACE = ("add_", "copy_", "index_copy_", "masked_fill_")
"""Operations that are methods of a tensor with the same arguments."""


def _repeated(call: _Call, results: Sequence[Tensor | None], known: dict[object, int]) -> Run:
    """A function that repeats a call and writes its results to where they were. A result of None is not needed.

    PyTorch's own functions are called several times faster than the operations behind them, and some compute straight
    into their result. `known` remembers of which kind the function of an operation is.
    """
    function = call.function
    if not isinstance(function, torch._ops.OpOverload):
        return partial(_copy, partial(function, *call.args), results)
    name = function.overloadpacket.__name__
    if call.writes:
        return partial(getattr(torch.Tensor, name) if name in IN_PLACE else function, *call.args, **call.kwargs)
    again = partial(function, *call.args, **call.kwargs)
    ways: list[Run] = [partial(_copy, again, results)]
    if (quick := getattr(torch, name, None) or getattr(torch._C._nn, name, None)) is not None:
        ways.append(partial(_copy, partial(quick, *call.args, **call.kwargs), results))
        if len(results) == 1:
            ways.append(partial(quick, *call.args, **call.kwargs, out=call.results[0]))
    kind = function, *map(type, call.args), *call.kwargs
    if kind not in known:
        known[kind] = next(i for i in reversed(range(len(ways))) if i == 0 or _works(ways[i]))
    return ways[known[kind]]


def _works(run: Run) -> bool:
    try:
        run()
    except (TypeError, RuntimeError, NotImplementedError):
        return False
    return True


def _copy(run: Run, results: Sequence[Tensor | None]) -> None:
    for result, new in zip(results, _listed(run()), strict=True):
        if result is not None:
            result.copy_(new)
