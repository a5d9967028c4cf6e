"""The performance of machines, by their makers' figures. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log2

from clearhead.errors import UserError

LINK_SHARE = 0.8
"""Share of a link's bandwidth that a collective reaches."""
LATENCY = 20e-6
"""Seconds of one hop of a collective: its kernel's start and the wire."""


@dataclass(frozen=True)
class Hardware:
    """One GPU, the node it sits in, and the network between nodes; a second is the unit of all rates."""

    name: str
    flops: float
    """FLOPs of a dense matrix product in bfloat16."""
    memory: int
    """Bytes."""
    bandwidth: float
    """Bytes to and from that memory."""
    link: float
    """Bytes that one GPU sends to the others of its node."""
    network: float
    """Bytes that one GPU sends to other nodes."""
    per_node: int = 8
    is_gpu: bool = True

    def group_bandwidth(self, ranks: int, stride: int = 1) -> float:
        """Bytes a second that a ring over `ranks` GPUs, every `stride`-th one, moves.

        Inside a node this is the link. Between nodes it is all network cards of the group's members in one node, as a
        ring goes through each of them.
        """
        if ranks * stride <= self.per_node:
            return LINK_SHARE * self.link
        members = max(1, self.per_node // stride)
        return LINK_SHARE * min(self.link, members * self.network)

    def all_reduce(self, n_bytes: float, ranks: int, *, stride: int = 1, messages: int = 1) -> float:
        """Seconds: 2 (n - 1) / n of the bytes through each rank (Patarasuk and Yuan 2009), 2 log2 n hops a message."""
        return 2 * self.all_gather(n_bytes, ranks, stride=stride, messages=messages)

    def all_gather(self, n_bytes: float, ranks: int, *, stride: int = 1, messages: int = 1) -> float:
        """Seconds, of a reduce-scatter too: (n - 1) / n of the bytes through each rank, log2 n hops a message."""
        if ranks == 1:
            return 0.0
        hops = messages * log2(ranks)
        return (ranks - 1) / ranks * n_bytes / self.group_bandwidth(ranks, stride) + hops * LATENCY


GB = 1_000_000_000
GIB = 1 << 30
KNOWN = {
    # The makers' data sheets, SXM form: dense bfloat16, memory, NVLink one way, one network card a GPU.
    "a100": Hardware("a100", 312e12, 80 * GIB, 2.0e12, 300e9, 25e9),
    "h100": Hardware("h100", 989e12, 80 * GIB, 3.35e12, 450e9, 50e9),
    "h200": Hardware("h200", 989e12, 141 * GB, 4.8e12, 450e9, 50e9),
    # A rough guess at two cores with bfloat16 instructions, for trying out plans. Give your own figures.
    "cpu": Hardware("cpu", 800e9, 16 * GIB, 40e9, 5e9, 1e9, per_node=1, is_gpu=False),
}


UNITS = {"flops": 1e12, "memory": GB, "bandwidth": 1e9, "network": 1e9, "per_node": 1}


def hardware(name: str, figures: Mapping[str, float | None] | None = None) -> Hardware:
    """A known GPU with some of its figures changed: flops in TFLOP/s, memory in GB, bandwidth and network in GB/s.

    Raises UserError for an unknown name, and for a figure of 0 or less.
    """
    if name not in KNOWN:
        raise UserError(f"--gpu: expected one of {', '.join(KNOWN)}, got {name}; or give --flops and --memory with one")
    given = {field: value for field, value in (figures or {}).items() if value is not None}
    for field, value in given.items():
        if not value > 0:
            option = "gpus-per-node" if field == "per_node" else field
            raise UserError(f"--{option}: expected more than 0, got {value}; leave it out for that of {name}")
    changed = {field: value * UNITS[field] for field, value in given.items()}
    base = KNOWN[name]
    return replace(
        base,
        flops=changed.get("flops", base.flops),
        memory=int(changed.get("memory", base.memory)),
        bandwidth=changed.get("bandwidth", base.bandwidth),
        network=changed.get("network", base.network),
        per_node=int(changed.get("per_node", base.per_node)),
    )
