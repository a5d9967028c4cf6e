"""Multiplies by weights in the order, and with the kernel, that this processor reads fastest: inference on a CPU."""

import mmap
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from math import gcd
from typing import cast
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
import xxhash
from torch import Tensor, nn

from clearhead.model.attention import Attention
from clearhead.model.block import Block
from clearhead.model.fast.autotune import Run, autotune, recall_tuned
from clearhead.model.fast.fused_qkv import FusedQKVPart, concatenated, concatenated_bias, parts, qkv_linears
from clearhead.model.fast.snapshot import obstacle
from clearhead.model.linear import LinearMap, is_plain, shared_copy
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
HUGE = 1 << 21
"""Bytes of a huge page."""
MEASURED_ROWS = (1, 8, 64)
"""Numbers of rows that are timed. A step of another number is taken for the next larger one."""
ACCURATE = 1e-5
"""Largest difference between packed and plain products, as a share of the largest number, that is accepted."""


class PackedLinear(LinearMap):
    """y = x W^T + b by one of `WAYS`, with W as it is or in another order."""

    def __init__(self, group: Sequence[nn.Linear], weight: Tensor, way: str = "packed") -> None:
        """`weight`: the matrices of `group` together, in the order of `way`, one of `WAYS`."""
        super().__init__(group[0].in_features, sum(m.out_features for m in group), concatenated_bias(group))
        self.weight, self.sources, self.product = weight, [m.weight for m in group], WAYS[way][1]

    def effective_weight(self) -> Tensor:
        return self.weight.to_dense()

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x, self.weight, self.bias)


Group = tuple[nn.Linear, ...]
"""Linear maps that share a packed matrix: queries, keys and values of self-attention, or a lone one."""


@dataclass(frozen=True)
class _Packed:
    """A packed matrix, and the fingerprints of the weights that it was made from."""

    fingerprints: list[int]
    matrix: Tensor


_kept: WeakKeyDictionary[nn.Linear, dict[str, _Packed]] = WeakKeyDictionary()
"""Packed matrices by the first linear map of each group that still exists, and by their order."""


def packed(network: Transformer, *, rows: int = 1) -> Transformer:
    """A copy of `network` with quicker products, which shares all else; `network` itself if they cannot pay.

    Each is by a packed matrix or by the matrix as it is, by oneDNN or PyTorch's own: what is quickest for `rows` rows
    on this machine, which is timed once. The copy belongs to the caller. Later writes to a matrix need not reach a
    packed one. Packed matrices are kept for the next call, one in each order that was asked for. It compares a
    fingerprint of every byte of the weights and packs again what has changed, by whatever means. `forget` frees them.
    """
    if obstacle(network) is not None:
        return network
    ways = {group: autotune(*_choice(group, rows)) for group in _worth_packing(network)}
    groups = [group for group, way in ways.items() if way in COPIES]
    found: dict[Group, _Packed] = {}
    for group, fingerprints in zip(groups, _fingerprints(groups), strict=True):
        way, kept = ways[group], _kept.setdefault(group[0], {})
        known = kept.get(way)
        if known is None or known.fingerprints != fingerprints:
            known = kept[way] = _Packed(fingerprints, WAYS[way][0](concatenated(group).weight.detach()))
        found[group] = known
    return _with(network, ways, found)


def ready(network: Transformer, *, rows: int = 1) -> Transformer:
    """The copy that `packed` makes, if it needs no timing and no packing; otherwise `network` itself."""
    recalled = {group: recall_tuned(*_choice(group, rows)) for group in _worth_packing(network)}
    ways = {group: way for group, way in recalled.items() if way is not None}
    if len(ways) < len(recalled):
        return network
    kept = {group: _kept.get(group[0], {}).get(way) for group, way in ways.items() if way in COPIES}
    found = {group: known for group, known in kept.items() if known is not None}
    is_ready = len(found) == len(kept)
    if is_ready and [known.fingerprints for known in found.values()] == _fingerprints([*found]):
        return _with(network, ways, found)
    return network


def copied(fast: nn.Module) -> list[Tensor]:
    """The weights whose packed copies a network reads in their place."""
    maps = (m.fused.module if isinstance(m, FusedQKVPart) else m for m in fast.modules())
    packs = (m for m in maps if isinstance(m, PackedLinear))
    return list({id(w): w for m in packs for w in m.sources if w is not m.weight}.values())


def forget(network: Transformer) -> None:
    """Frees the packed matrices of `network`."""
    for module in network.modules():
        if isinstance(module, nn.Linear):
            _kept.pop(module, None)


def _with(network: Transformer, ways: Mapping[Group, str], found: Mapping[Group, _Packed]) -> Transformer:
    instead: dict[nn.Module, nn.Module] = {
        m: PackedLinear([m], m.weight, way) for group, way in ways.items() if way == "direct" for m in group
    }
    for group, known in found.items():
        instead |= zip(group, parts(group, PackedLinear(group, known.matrix, ways[group])), strict=True)
    return cast("Transformer", shared_copy(network, instead)) if instead else network


def _worth_packing(network: Transformer) -> list[Group]:
    """The linear maps of `network` to pack, in groups; none if packing cannot pay or would change a number."""
    groups: dict[nn.Linear, Group] = {m: (m,) for m in network.modules() if isinstance(m, nn.Linear) and is_plain(m)}
    for block in network.modules():
        if isinstance(block, Block) and isinstance(block.attn, Attention) and (linears := qkv_linears(block.attn)):
            groups = {m: group for m, group in groups.items() if m not in linears} | {linears[0]: tuple(linears)}
    found = [group for group in groups.values() if sum(m.weight.numel() for m in group) >= WORTH_PACKING]
    weights = [m.weight for group in found for m in group]
    if not weights or not torch.backends.mkldnn.is_available() or torch.is_autocast_enabled("cpu"):
        return []
    small = sum(w.numel() * w.element_size() for w in weights) <= PACKED_BYTES
    plain = all(w.device.type == "cpu" and w.dtype == weights[0].dtype for w in weights)
    return found if small and plain and _packs_accurately(weights[0].dtype) else []


def _choice(group: Group, rows: int) -> tuple[str, dict[str, Callable[[], Run]]]:
    """The question for `autotune` about a group, and the ways to multiply by its matrices."""
    width, outputs = group[0].in_features, sum(m.out_features for m in group)
    share = min(1.0, TIMED / width / outputs)
    weights = [m.weight.detach()[: max(1, int(m.out_features * share))] for m in group]
    outputs = sum(map(len, weights))
    n = min(max(1, round(TIMED / (outputs * width))), MOST_COPIES)
    rows = next((n for n in MEASURED_ROWS if n >= rows), MEASURED_ROWS[-1])
    x = torch.ones(rows, width, dtype=weights[0].dtype)

    def prepared(way: str) -> Run:
        order, product = WAYS[way]
        one = [torch.cat(weights)] if way in COPIES else weights
        matrices = [order(weight.clone()) for _ in range(n) for weight in one]
        return lambda: [product(x, matrix, None) for matrix in matrices]

    name, sizes = str(x.dtype).removeprefix("torch."), " + ".join(str(len(weight)) for weight in weights)
    is_turned = not group[0].weight.is_contiguous()
    by_inputs = ", stored by inputs" if is_turned else ""
    # One thread has no parts.
    ways = {way: partial(prepared, way) for way in WAYS if torch.get_num_threads() > 1 or "parts" not in way}
    return f"{name} {n} x {sizes} x {width}{by_inputs}, {rows} rows", ways


def _fingerprints(groups: list[Group]) -> list[list[int]]:
    """A 128-bit hash of the bytes of each weight. It is as fast as memory. Versions would miss writes to `.data`."""
    if not groups:
        return []
    with ThreadPoolExecutor(torch.get_num_threads()) as threads:  # The hash runs without Python's lock.
        hashes = threads.map(fingerprint, [m.weight.detach() for group in groups for m in group])
        return [[next(hashes) for _ in group] for group in groups]


def fingerprint(weight: Tensor) -> int:
    """A 128-bit hash of the bytes of a matrix, and of the order in which they are read."""
    is_turned = not weight.is_contiguous()
    stored = weight.T if is_turned else weight
    return xxhash.xxh3_128_intdigest(stored.contiguous().view(torch.uint8).numpy().data, seed=is_turned)


def _pack(weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)


def _by_inputs(weight: Tensor) -> Tensor:
    return _by_outputs(weight.T).T


def _by_outputs(weight: Tensor) -> Tensor:
    """A copy, in huge pages if the system has them: a processor reads these faster."""
    if (advice := getattr(mmap, "MADV_HUGEPAGE", None)) is None:
        return weight.contiguous()
    room = mmap.mmap(-1, weight.nbytes + HUGE, flags=mmap.MAP_PRIVATE)
    with suppress(OSError):
        room.madvise(advice)
    start = -torch.frombuffer(room, dtype=torch.uint8).data_ptr() % HUGE
    copy = torch.frombuffer(room, dtype=weight.dtype, count=weight.numel(), offset=start)
    return copy.view(weight.shape).copy_(weight)


def _as_it_is(weight: Tensor) -> Tensor:
    return weight


def _multiplied(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")


def _in_parts(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Each thread takes some outputs or inputs, as the matrix is stored: in PyTorch's product of one row, one works."""
    n = gcd(torch.get_num_threads(), *weight.shape)
    if n == 1 or x.numel() != x.shape[-1] or x.dtype != torch.float32:  # Parts in 16 bits are rounded.
        return _multiplied(x, weight, bias)
    if weight.is_contiguous():
        y = torch.bmm(x.view(1, 1, -1).expand(n, -1, -1), weight.unflatten(0, (n, -1)).mT)
    else:
        y = torch.bmm(x.view(n, 1, -1), weight.T.unflatten(0, (n, -1))).sum(0)
    y = y.view(*x.shape[:-1], -1)
    return y if bias is None else y + bias


Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
WAYS: dict[str, tuple[Callable[[Tensor], Tensor], Product]] = {
    "direct": (_as_it_is, _multiplied),
    "packed": (_pack, _multiplied),
    "by inputs": (_by_inputs, _multiplied),
    "by inputs, in parts": (_by_inputs, _in_parts),
    "by outputs, in parts": (_by_outputs, _in_parts),
    "plain": (_as_it_is, F.linear),
}
"""The order of a matrix and the kernel, oneDNN's or PyTorch's own, of each way to multiply."""
COPIES = tuple(way for way, (order, _) in WAYS.items() if order is not _as_it_is)
"""The ways that keep a copy of the matrix in another order."""


@cache
def _packs_accurately(dtype: torch.dtype) -> bool:
    """True if packed products of this machine are accurate for `dtype`: some settings let oneDNN round further."""
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    weight = torch.arange(512.0 * 512).sin().view(512, 512).to(dtype)
    x = torch.arange(4.0 * 512).cos().view(4, 512).to(dtype)
    expected = x @ weight.T
    try:
        found = _multiplied(x, _pack(weight), None)
    except RuntimeError:  # This processor is not supported.
        return False
    gap = (found - expected).abs().max() / expected.abs().max()
    return float(gap) <= (ACCURATE if dtype == torch.float32 else torch.finfo(dtype).eps)
