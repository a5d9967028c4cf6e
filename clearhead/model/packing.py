"""Packs weights into the order that the processor reads fastest, for inference on a CPU."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import cast
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
import xxhash
from torch import Tensor, nn

from clearhead.model.linear import LinearMap, is_plain, shared_copy
from clearhead.model.quickest import Run, answered, quickest
from clearhead.model.transformer import Transformer

WORTH_PACKING = 1 << 18
"""Smallest size of a matrix, in numbers, for which packing may pay (docs/inference.md)."""
PACKED_BYTES = 4 << 30
"""Most bytes of weights beside which packed matrices are kept."""
ROWS = 64
"""Rows for which the layout is optimal. Other numbers work too, and one row is as fast as with its own layout."""
TIMED, MOST_COPIES = 1 << 22, 16
"""Numbers that are timed: of copies of a small matrix, for a step never finds it in the processor's cache, or of the
first outputs of a large one."""
MEASURED_ROWS = (1, 8, 64)
"""Numbers of rows that are timed. A step of another number is taken for the next larger one."""
ACCURATE = 1e-5
"""Largest difference between packed and plain products, as a share of the largest number, that is accepted."""


class PackedLinear(LinearMap):
    """y = x W^T + b, with W in the order in which oneDNN reads it fastest."""

    def __init__(self, linear: nn.Linear, packed: Tensor) -> None:
        super().__init__(linear.in_features, linear.out_features, linear.bias)
        self.packed = packed

    def effective_weight(self) -> Tensor:
        return self.packed.to_dense()

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


@dataclass(frozen=True)
class _Packed:
    """A packed matrix, and the fingerprint of the weights that it was made from."""

    fingerprint: int
    matrix: Tensor


_kept: WeakKeyDictionary[nn.Linear, _Packed] = WeakKeyDictionary()
"""Packed matrices of linear maps that still exist."""


def packed(network: Transformer, *, rows: int = 1) -> Transformer:
    """A copy of `network` with packed matrices, which shares everything else; `network` itself if packing cannot pay.

    Matrices are packed whose product with `rows` rows is then quicker on this machine, which is timed once.
    The copy belongs to the caller. It holds the large matrices as they are now: later writes to them do not reach it.
    Packed matrices are kept for the next call, which compares a fingerprint of every byte of the weights and packs
    again what has changed, by whatever means. `forget` frees them.
    """
    linears = [m for m in _worth_packing(network) if quickest(*_choice(m, rows)) == "packed"]
    found: dict[nn.Linear, _Packed] = {}
    for linear, fingerprint in zip(linears, _fingerprints(linears), strict=True):
        known = _kept.get(linear)
        if known is None or known.fingerprint != fingerprint:
            known = _kept[linear] = _Packed(fingerprint, _pack(linear.weight.detach()))
        found[linear] = known
    return _with(network, found)


def ready(network: Transformer, *, rows: int = 1) -> Transformer:
    """The copy that `packed` makes if it needs no timing and no packing; otherwise `network` itself."""
    linears = _worth_packing(network)
    ways = [answered(*_choice(linear, rows)) for linear in linears]
    if None in ways:
        return network
    linears = [linear for linear, way in zip(linears, ways, strict=True) if way == "packed"]
    found = {linear: known for linear in linears if (known := _kept.get(linear)) is not None}
    is_ready = len(found) == len(linears)
    if is_ready and [known.fingerprint for known in found.values()] == _fingerprints(linears):
        return _with(network, found)
    return network


def forget(network: Transformer) -> None:
    """Free the packed matrices of `network`."""
    for module in network.modules():
        if isinstance(module, nn.Linear):
            _kept.pop(module, None)


def _with(network: Transformer, found: Mapping[nn.Linear, _Packed]) -> Transformer:
    if not found:
        return network
    instead: dict[nn.Module, nn.Module] = {m: PackedLinear(m, known.matrix) for m, known in found.items()}
    return cast("Transformer", shared_copy(network, instead))


def _worth_packing(network: Transformer) -> list[nn.Linear]:
    """The linear maps of `network` to pack; none if packing cannot pay or would change a number."""
    linears = [m for m in network.modules() if isinstance(m, nn.Linear) and m.weight.numel() >= WORTH_PACKING]
    linears = [m for m in linears if is_plain(m)]
    weights = [m.weight for m in linears]
    if not weights or not torch.backends.mkldnn.is_available() or torch.is_autocast_enabled("cpu"):
        return []
    small = sum(w.numel() * w.element_size() for w in weights) <= PACKED_BYTES
    plain = all(w.device.type == "cpu" and w.dtype == weights[0].dtype for w in weights)
    return linears if small and plain and _packs_accurately(weights[0].dtype) else []


def _choice(linear: nn.Linear, rows: int) -> tuple[str, dict[str, Callable[[], Run]]]:
    """What `quickest` is asked about a matrix, and the two ways to multiply by it."""
    weight = linear.weight.detach()
    width = weight.shape[1]
    outputs = min(len(weight), max(1, TIMED // width))
    n = min(max(1, TIMED // (outputs * width)), MOST_COPIES)
    rows = next((n for n in MEASURED_ROWS if n >= rows), MEASURED_ROWS[-1])
    by_inputs = "" if weight.is_contiguous() else ", stored by inputs"

    def plain() -> Run:
        x, matrices = torch.ones(rows, width, dtype=weight.dtype), [weight[:outputs].clone() for _ in range(n)]
        return lambda: [F.linear(x, matrix) for matrix in matrices]

    def packed() -> Run:
        x, matrices = torch.ones(rows, width, dtype=weight.dtype), [_pack(weight[:outputs]) for _ in range(n)]
        return lambda: [torch.ops.mkldnn._linear_pointwise(x, matrix, None, "none", [], "") for matrix in matrices]

    name = str(weight.dtype).removeprefix("torch.")
    return f"{name} {outputs} x {width}{by_inputs}, {rows} rows", {"packed": packed, "plain": plain}


def _fingerprints(linears: list[nn.Linear]) -> list[int]:
    """A 128-bit hash of the bytes of each weight. It is as fast as memory. Versions would miss writes to `.data`."""
    if not linears:
        return []
    with ThreadPoolExecutor(torch.get_num_threads()) as threads:  # The hash runs without Python's lock.
        return list(threads.map(_fingerprint, [linear.weight.detach() for linear in linears]))


def _fingerprint(weight: Tensor) -> int:
    stored = weight if weight.is_contiguous() else weight.T
    return xxhash.xxh3_128_intdigest(stored.contiguous().view(torch.uint8).numpy().data)


def _pack(weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)


@cache
def _packs_accurately(dtype: torch.dtype) -> bool:
    """Whether packed products of this machine are accurate for `dtype`: some settings let oneDNN round further."""
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    weight = torch.arange(512.0 * 512).sin().view(512, 512).to(dtype)
    x = torch.arange(4.0 * 512).cos().view(4, 512).to(dtype)
    expected = x @ weight.T
    try:
        found = torch.ops.mkldnn._linear_pointwise(x, _pack(weight), None, "none", [], "")
    except RuntimeError:  # This processor is not supported.
        return False
    gap = (found - expected).abs().max() / expected.abs().max()
    return float(gap) <= (ACCURATE if dtype == torch.float32 else torch.finfo(dtype).eps)
