"""tap() names a value inside the network; trace() records it and can replace it.

Without a trace, `tap` returns its value unchanged: one global check in eager mode, nothing in a compiled graph.
A trace neither records nor edits what other threads compute.
"""

import itertools
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from clearhead.brief import shape_of
from clearhead.errors import UserError
from clearhead.trace.address import Address, ByRow, Edit, add, apply, mean, nearest, scale, zero

__all__ = [
    "Address",
    "Attached",
    "ByRow",
    "Edit",
    "HasAttached",
    "Trace",
    "add",
    "asked",
    "changed",
    "edited",
    "looked_at",
    "mean",
    "nearest",
    "patch",
    "recording",
    "scale",
    "tap",
    "tell_padding",
    "trace",
    "tracing",
    "untraced",
    "watched",
    "zero",
]

_tracers: dict[int, "Trace"] = {}
"""The running traces by thread."""


def tap(owner: nn.Module, name: str, value: Tensor, axes: str) -> Tensor:
    """Returns the value, which a running trace may record and replace as `path_of(owner).name`.

    `axes` names the dimensions, one letter each: b batch, t query, s key position, h head, d width, k head width,
    f FFN width, v vocabulary, r row of a table of distances (docs/glossary.md). A trace checks them against the
    value's rank.
    """
    return _seen(owner, name, value, axes) if _tracers else value


def _seen(owner: nn.Module, name: str, value: Tensor, axes: str) -> Tensor:
    tracer = _tracers.get(threading.get_ident())
    return value if tracer is None else tracer.visit(owner, name, value, axes)


def tell_padding(**real: Tensor | None) -> None:
    """Tells a running trace which cells of these axes hold tokens, b n, bool; None for all. Edits skip the others."""
    tracer = _tracers.get(threading.get_ident()) if _tracers else None
    if tracer is not None:
        tracer.real.update(real)


def tracing() -> bool:
    """True if a trace of this thread wants values that fast ops hide. Such an op then takes its explicit form."""
    tracer = _tracers.get(threading.get_ident()) if _tracers else None
    return tracer is not None and tracer.explicit


def watched() -> bool:
    """True if a trace, `recording` or `edited` runs in this thread. It knows only the modules of its own network."""
    return bool(_tracers) and threading.get_ident() in _tracers


def looked_at(owner: nn.Module, name: str) -> bool:
    """True if a trace wants this value. Values computed only for a trace are skipped otherwise."""
    tracer = _tracers.get(threading.get_ident()) if _tracers else None
    return tracer is not None and tracer.wants(owner, name)


def asked(owner: nn.Module, name: str) -> bool:
    """True if this large value is wanted: an edit or `recording` names it, or the trace is `large`."""
    tracer = _tracers.get(threading.get_ident()) if _tracers else None
    return tracer is not None and tracer.names(owner, name)


def changed(owner: nn.Module, name: str, value: Tensor, axes: str) -> Tensor:
    """The value that `tap` would return in the running trace, which does not record it."""
    tracer = _tracers[threading.get_ident()]
    return tracer.edited(f"{tracer.paths[owner]}.{name}", value, axes)


def patch(other: "Trace", address: str) -> Callable[[Tensor], Tensor]:
    """Edit: the value that another trace saw at this address."""

    def other_value(value: Tensor) -> Tensor:
        return other[address].to(value)

    return other_value


class Attached(Protocol):
    """Numbers computed from one value that change a value, such as the features of a sparse autoencoder."""

    @property
    def reads(self) -> str:
        """The address of the value that the numbers are read from. Their own is `reads.name`, with the last axis f."""
        ...

    @property
    def writes(self) -> str:
        """The address of the value that the numbers write to: the same, or a later one."""
        ...

    @property
    def name(self) -> str:
        """The last part of their address."""
        ...

    def encode(self, value: Tensor) -> Tensor:
        """... d -> ... f: the numbers."""
        ...

    def written(self, change: Tensor) -> Tensor:
        """... f -> ... d: the effect of a change of the numbers on the value that they write."""
        ...


class HasAttached(nn.Module):
    """A network that numbers can be attached to."""

    def __init__(self) -> None:
        super().__init__()
        self.attached: list[Attached] = []
        """Numbers with addresses of their own in every trace, such as the features of a sparse autoencoder."""


@dataclass(eq=False)
class Trace:
    """The values of one or more forward passes by address, and the edits."""

    paths: dict[nn.Module, str]
    edits: list[tuple[Address, Edit]] = field(default_factory=list)
    axes: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    without: frozenset[str] = frozenset()
    """Names, such as heads, that are not recorded unless edited. They must follow from other values."""
    real: dict[str, Tensor | None] = field(default_factory=dict)
    """The cells of the running pass that hold tokens, b n, by axis; None for all."""
    attached: tuple[Attached, ...] = ()
    only: frozenset[str] | None = None
    """The paths that are recorded; None for all."""
    explicit: bool = True
    """True if ops that hide values take their explicit form. If not, they are as fast as without a trace."""
    large: bool = False
    """True to record values that are too large for most traces too."""
    _values: dict[str, list[Tensor]] = field(default_factory=dict)
    _changes: dict[str, list[Tensor]] = field(default_factory=dict)
    """Tensors that edits of attached numbers add to a value that is still to come."""

    def wants(self, owner: nn.Module, name: str) -> bool:
        """True if the value is recorded or edited."""
        path = f"{self.paths.get(owner)}.{name}"
        return self._touches(path) or (self._keeps(path) and name not in self.without)

    def names(self, owner: nn.Module, name: str) -> bool:
        """True if an edit changes the value, or `only` names it, or values may be `large`."""
        path = f"{self.paths.get(owner)}.{name}"
        return (
            (self.large and name not in self.without)
            or self._touches(path)
            or (self.only is not None and path in self.only)
        )

    def _touches(self, path: str) -> bool:
        """True if an edit changes this value, or attached numbers read or change it."""
        edited = any(address.path == path for address, _ in self.edits)
        return edited or any(path in (one.reads, one.writes) for one in self.attached)

    def _keeps(self, path: str) -> bool:
        return self.only is None or path in self.only

    def visit(self, owner: nn.Module, name: str, value: Tensor, axes: str) -> Tensor:
        """Applies the edits of a tapped value and records it. The network continues with the result."""
        prefix = self.paths.get(owner)
        if prefix is None:
            return value
        path = f"{prefix}.{name}" if prefix else name
        self.axes[path] = axes
        if not self._keeps(path) and not self._touches(path):
            return value
        if not self.explicit and len(axes.split()) == value.ndim + 1:  # Packed.
            if not axes.startswith("b t "):
                return value
            axes = f"m {axes[4:]}"
        if len(axes.split()) != value.ndim:
            raise AssertionError(f"{path}: axes {axes!r} do not fit shape {tuple(value.shape)}")
        value = self.edited(path, value, axes)
        for change in self._changes.pop(path, ()):
            value = value + change.to(value)
        for numbers in self.attached:
            if path == numbers.reads:
                value = self._through(numbers, value, axes)
        self._keep(path, value, axes)
        return value

    def _through(self, numbers: Attached, value: Tensor, axes: str) -> Tensor:
        """Reads attached numbers; what an edit of them changes is added to the value, or to the one that they write."""
        path, axes = f"{numbers.reads}.{numbers.name}", f"{axes[:-1]}f"
        before = numbers.encode(value)
        after = self.edited(path, before, axes)
        self._keep(path, after, axes)
        if after is before:  # No error of theirs reaches an unedited pass.
            return value
        change = numbers.written(after - before)
        if numbers.writes == numbers.reads:
            return value + change.to(value)
        self._changes.setdefault(numbers.writes, []).append(change)
        return value

    def edited(self, path: str, value: Tensor, axes: str) -> Tensor:
        """The value after the edits of its address."""
        for address, edit in self.edits:
            if address.path == path:
                value = self._within_text(value, apply(value, address, edit, axes), axes.split())
                self.used.add(path)
        return value

    def _keep(self, path: str, value: Tensor, axes: str) -> None:
        self.axes[path] = axes
        if self._keeps(path):
            self._values.setdefault(path, []).append(value)
        if self.only and len(self._values) == len(self.only):
            raise _Complete

    def _within_text(self, value: Tensor, edited: Tensor, names: list[str]) -> Tensor:
        """The edited value with the original padding. So no edit of padding reaches a real position."""
        for axis, real in self.real.items():
            if real is None or axis not in names or real.shape[1] != value.shape[names.index(axis)]:
                continue  # Or the padding belongs to another pass.
            shape = [real.shape[("b", axis).index(name)] if name in ("b", axis) else 1 for name in names]
            edited = torch.where(real.view(shape), edited, value)
        return edited

    def __getitem__(self, address: str) -> Tensor:
        """The value last seen at an address, indexed as the address says."""
        where, values = self._find(address)
        return where.of(values[-1], self.axes[where.path])

    def _find(self, address: str) -> tuple[Address, list[Tensor]]:
        where = Address.parse(address)
        if where.path not in self._values:
            raise UserError(f"{where.path}: no such address in this trace{nearest(where.path, self._values)}")
        return where, self._values[where.path]

    def __repr__(self) -> str:
        """The number of values, the first ones with their shapes, and how to read one."""
        shown = [
            f"{a} ({self.axes[a]}): {shape_of(values[-1])}" for a, values in itertools.islice(self._values.items(), 4)
        ]
        n_bytes = sum(v.numel() * v.element_size() for values in self._values.values() for v in values)
        head = (
            f"Trace of {len(self)} addresses, {n_bytes / 1e6:,.1f} MB; list(trace) names them, trace[address] has one"
        )
        return "\n  ".join([head, *shown, *(["…"] if len(self) > len(shown) else [])])

    def __contains__(self, address: str) -> bool:
        return Address.parse(address).path in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class _Complete(Exception):
    """Ends a forward pass after the last wanted value."""


@contextmanager
def recording(
    network: nn.Module, paths: Collection[str], *, edit: Mapping[str, Edit] | None = None, explicit: bool = False
) -> Iterator[Trace]:
    """Records only the values at these paths during one forward pass, and ends the pass as soon as it has them.

    `edit` is as in `trace`. The block ends where the pass ends. The pass takes its fast form unless `explicit`: the
    values that fast ops hide, such as attention weights and the parts of norms, are missing then, and those of a packed
    batch have the axes m d.
    """
    with suppress(_Complete), _running(network, edit, only=frozenset(paths), explicit=explicit) as current:
        yield current


@contextmanager
def trace(
    network: nn.Module, edit: Mapping[str, Edit] | None = None, *, without: Collection[str] = (), large: bool = False
) -> Iterator[Trace]:
    """Records every tapped value of `network` while the block runs, and replaces those named in `edit`.

    `without` names values, such as heads, that are computed only for a trace, and skips them. `large` adds those that
    only `recording` has otherwise: the states after each position, and what each channel of a scan reads.

    An edit is a number, a tensor or a function of the value, for the whole address or the part that it indexes. Edits
    of one value are made in order. They leave padding unchanged, because it reaches no real position.

    Compiled code runs eagerly meanwhile. Raises UserError for an edit that no forward pass met.
    """
    with _running(network, edit, without=frozenset(without), large=large) as current:
        yield current


@contextmanager
def edited(network: nn.Module, edit: Mapping[str, Edit], *, explicit: bool = False) -> Iterator[None]:
    """Makes these edits while the block runs, and keeps no value. The network's fast kernels stay on unless `explicit`.

    A fast kernel hides some values, such as attention weights, and where a batch is packed, a value has the axes m d,
    m counting its tokens. Raises UserError for an edit that no forward pass met; an `explicit` one reaches all.
    """
    with _running(network, edit, only=frozenset(), explicit=explicit):
        yield


@contextmanager
def untraced() -> Iterator[None]:
    """Hides the running trace of this thread from other passes, such as those of a hook during a traced pass."""
    thread = threading.get_ident()
    tracer = _tracers.pop(thread, None)
    try:
        yield
    finally:
        if tracer is not None:
            _tracers[thread] = tracer


_eager_lock, _eager_stance = threading.Lock(), ExitStack()
_eager_threads: list[int] = []
"""The threads that keep compiled code from running."""


@contextmanager
def _uncompiled() -> Iterator[None]:
    """Runs compiled code eagerly, until the last thread leaves: PyTorch has one stance for all threads."""
    with _eager_lock:
        if not _eager_threads:
            _eager_stance.enter_context(torch.compiler.set_stance("force_eager"))
        _eager_threads.append(threading.get_ident())
    try:
        yield
    finally:
        with _eager_lock:
            _eager_threads.remove(threading.get_ident())
            if not _eager_threads:
                _eager_stance.close()


@contextmanager
def _running(network: nn.Module, edit: Mapping[str, Edit] | None = None, **options: Any) -> Iterator[Trace]:
    """A trace in this thread; `options` are fields of `Trace`."""
    thread = threading.get_ident()
    if thread in _tracers:
        raise RuntimeError("a trace is already running; traces do not nest")
    if not isinstance(network, nn.Module):
        raise UserError(
            f"trace: expected a network, got {type(network).__name__}; try model.network or model.tracing()"
        )
    if edit is not None and not isinstance(edit, Mapping):
        raise UserError(f"edit: expected edits by address, such as {{address: 0.0}}, got {type(edit).__name__}")
    edits = [(Address.parse(address), value) for address, value in (edit or {}).items()]
    # torch.compile wraps a module in another, which no address names.
    paths = {m: path.removeprefix("_orig_mod").removeprefix(".") for path, m in network.named_modules()}
    attached = tuple(one for module in paths if isinstance(module, HasAttached) for one in module.attached)
    current = Trace(paths, edits, attached=attached, **options)
    _tracers[thread] = current
    try:
        # Importing the compiler takes seconds. If it is not imported, nothing is compiled.
        compiled = "torch._dynamo" in sys.modules
        with _uncompiled() if compiled else nullcontext():
            yield current
    finally:
        del _tracers[thread]
    for at in [address.path for address, _ in edits]:
        if at not in current.used:
            raise UserError(f"{at}: edited, but no value has this address{nearest(at, current.axes)}")
