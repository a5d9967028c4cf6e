"""tap() names a value inside the network; trace() records it and can replace it.

Without a trace, `tap` returns its value unchanged: one global check in eager mode, nothing in a compiled graph.
A trace neither records nor edits what other threads compute.
"""

import itertools
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from numbers import Real

import torch
from torch import Tensor, nn

from clearhead.brief import shape_of
from clearhead.errors import UserError

Edit = Tensor | float | Callable[[Tensor], Tensor]

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
    """Whether a trace of this thread wants values that fast ops hide. Such an op then takes its explicit form."""
    tracer = _tracers.get(threading.get_ident()) if _tracers else None
    return tracer is not None and tracer.explicit


def looked_at(owner: nn.Module, name: str) -> bool:
    """Whether a trace wants this value. Values computed only for a trace are skipped otherwise."""
    tracer = _tracers.get(threading.get_ident()) if _tracers else None
    return tracer is not None and tracer.wants(owner, name)


@dataclass(frozen=True)
class Address:
    """The address of a value: `decoder.blocks.3.attn.weights[h=2,t=0]`, with optional indices on axes."""

    path: str
    index: tuple[tuple[str, int], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Parses an address. Raises UserError if the text is none."""
        if not isinstance(text, str):
            raise UserError(f"address: expected text such as decoder.blocks.0.attn.weights, got {type(text).__name__}")
        match = re.fullmatch(r"([A-Za-z_][\w.]*)(?:\[([^\]]*)\])?", text.strip())
        if match is None:
            raise UserError(f"{text!r}: expected an address such as decoder.blocks.0.attn.weights[h=2]")
        index: list[tuple[str, int]] = []
        for part in filter(None, (match[2] or "").split(",")):
            pair = re.fullmatch(r"\s*([a-z])\s*=\s*(-?\d+)\s*", part)
            if pair is None:
                raise UserError(f"{text!r}: expected an index such as h=2, got {part.strip()!r}")
            if pair[1] in dict(index):
                raise UserError(f"{text!r}: expected one index of axis {pair[1]}, got two; leave one of them out")
            index.append((pair[1], int(pair[2])))
        return cls(match[1], tuple(index))

    def __str__(self) -> str:
        inside = ",".join(f"{axis}={i}" for axis, i in self.index)
        return f"{self.path}[{inside}]" if inside else self.path

    def slices(self, axes: str, shape: torch.Size) -> tuple[int | slice, ...]:
        """The index into a value with these axes. Raises UserError for an axis or index that it does not have."""
        names = axes.split()
        result: list[int | slice] = [slice(None)] * len(names)
        for axis, i in self.index:
            if axis not in names:
                raise UserError(f"{self}: axis {axis!r} is not one of {axes!r}")
            dimension = names.index(axis)
            if not -shape[dimension] <= i < shape[dimension]:
                raise UserError(f"{self}: {axis}={i} is outside 0..{shape[dimension] - 1}")
            result[dimension] = i
        return tuple(result)

    def of(self, value: Tensor, axes: str) -> Tensor:
        """The value itself, so that its gradient can be kept, or the part that the indices select."""
        return value[self.slices(axes, value.shape)] if self.index else value


def zero(value: Tensor) -> Tensor:
    """Edit: all zeros."""
    return torch.zeros_like(value)


def mean(value: Tensor) -> Tensor:
    """Edit: the mean over the last axis."""
    return value.mean(-1, keepdim=True).expand_as(value)


def scale(factor: float) -> Callable[[Tensor], Tensor]:
    """Edit: the value times `factor`."""
    return lambda value: value * factor


def patch(other: "Trace", address: str) -> Callable[[Tensor], Tensor]:
    """Edit: the value that another trace saw at this address."""

    def other_value(value: Tensor) -> Tensor:
        return other[address].to(value)

    return other_value


@dataclass(eq=False)
class Trace:
    """The values of one or more forward passes by address, and the edits."""

    paths: dict[nn.Module, str]
    edits: list[tuple[Address, Edit]] = field(default_factory=list)
    axes: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    without: frozenset[str] = frozenset()
    """Names, such as heads, that are not recorded unless edited. They must follow from other values."""
    only: frozenset[str] | None = None
    """The paths that are recorded; None for all."""
    explicit: bool = True
    """Whether ops that hide values take their explicit form."""
    real: dict[str, Tensor | None] = field(default_factory=dict)
    """By axis, b n: the cells of the running pass that hold tokens; None for all."""
    _values: dict[str, list[Tensor]] = field(default_factory=dict)

    def wants(self, owner: nn.Module, name: str) -> bool:
        """Whether the value is recorded or edited."""
        path = f"{self.paths.get(owner)}.{name}"
        if self.only is not None:
            return path in self.only
        return name not in self.without or any(address.path == path for address, _ in self.edits)

    def visit(self, owner: nn.Module, name: str, value: Tensor, axes: str) -> Tensor:
        """Applies the edits of a tapped value and records it. The network continues with the result."""
        prefix = self.paths.get(owner)
        if prefix is None:
            return value
        path = f"{prefix}.{name}" if prefix else name
        if self.only is not None and path not in self.only:
            return value
        if len(axes.split()) != value.ndim:
            raise AssertionError(f"{path}: axes {axes!r} do not fit shape {tuple(value.shape)}")
        for address, edit in self.edits:
            if address.path == path:
                value = self._within_text(value, _edited(value, address, edit, axes), axes.split())
                self.used.add(path)
        self.axes[path] = axes
        self._values.setdefault(path, []).append(value)
        if self.only is not None and len(self._values) == len(self.only):
            raise _Complete
        return value

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

    def visits(self, address: str) -> list[Tensor]:
        """Every value seen at an address, in order: one for each forward pass (generation makes one a step)."""
        where, values = self._find(address)
        return [where.of(value, self.axes[where.path]) for value in values]

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
    """Ends a forward pass of which nothing more is wanted."""


@contextmanager
def recording(network: nn.Module, paths: Collection[str], *, explicit: bool = False) -> Iterator[Trace]:
    """Records the values at these paths alone during one forward pass, and ends it as soon as it has them.

    The block ends where the pass ends. The pass is padded, and takes its fast form unless `explicit`: the values that
    fast ops hide, such as attention weights and the parts of norms, are missing then.
    """
    paths_of = _paths(network)
    with suppress(_Complete), _running(Trace(paths_of, only=frozenset(paths), explicit=explicit)) as current:
        yield current


@contextmanager
def trace(
    network: nn.Module, edit: Mapping[str, Edit] | None = None, *, without: Collection[str] = ()
) -> Iterator[Trace]:
    """Records every tapped value of `network` while the block runs, and replaces those named in `edit`.

    `without` names values, such as heads, that are computed only for a trace, and skips them.

    An edit is a number, a tensor or a function of the value, for the whole address or the part that it indexes. Edits
    of one value are made in order. They leave padding unchanged, because it reaches no real position.

    Compiled code runs eagerly meanwhile. Raises UserError for an edit that no forward pass met.
    """
    if not isinstance(network, nn.Module):
        raise UserError(
            f"trace: expected a network, got {type(network).__name__}; try model.network or model.tracing()"
        )
    if edit is not None and not isinstance(edit, Mapping):
        raise UserError(f"edit: expected edits by address, such as {{address: 0.0}}, got {type(edit).__name__}")
    edits = [(Address.parse(address), value) for address, value in (edit or {}).items()]
    with _running(Trace(_paths(network), edits, without=frozenset(without))) as current:
        yield current
    for address, _ in edits:
        if address.path not in current.used:
            raise UserError(f"{address.path}: edited, but no value has this address{nearest(address.path, current)}")


@contextmanager
def _running(current: Trace) -> Iterator[Trace]:
    """Makes this the trace of the thread while the block runs."""
    thread = threading.get_ident()
    if thread in _tracers:
        raise RuntimeError("a trace is already running; traces do not nest")
    _tracers[thread] = current
    try:
        # Importing the compiler takes seconds. If it is not imported, nothing is compiled.
        compiled = "torch._dynamo" in sys.modules
        with torch.compiler.set_stance("force_eager") if compiled else nullcontext():
            yield current
    finally:
        del _tracers[thread]


def _paths(network: nn.Module) -> dict[nn.Module, str]:
    """The path of each module. torch.compile wraps a module in another, which no address names."""
    return {m: path.removeprefix("_orig_mod").removeprefix(".") for path, m in network.named_modules()}


def _edited(value: Tensor, address: Address, edit: Edit, axes: str) -> Tensor:
    where = address.slices(axes, value.shape)
    part = address.of(value, axes)
    made = edit(part.clone()) if callable(edit) else edit  # A clone, because a function may write into its argument.
    if isinstance(made, Real):
        with suppress(OverflowError):  # Of a whole number that no float reaches.
            made = torch.tensor(float(made))
    if not isinstance(made, Tensor) or made.is_complex():
        got = "complex numbers" if isinstance(made, Tensor) else "None" if made is None else type(made).__name__
        what = "a function that returns a tensor or a number" if callable(edit) else "a tensor, a number or a function"
        raise UserError(f"{address}: expected {what}, got {got}")
    try:
        new = made.to(part).expand_as(part)
    except RuntimeError:
        raise UserError(
            f"{address}: expected an edit of shape {tuple(part.shape)}, got {tuple(made.shape)}; try a number"
        ) from None
    if not address.index:
        return new
    result = value.clone()
    result[where] = new
    return result


def nearest(path: str, known: Iterable[str]) -> str:
    """A suggestion for an error message: the known name that is most alike, if any."""
    close = get_close_matches(path, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
