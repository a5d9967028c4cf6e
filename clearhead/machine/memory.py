"""The memory that this process may still take, and what sets the limit.

Three kinds of limit apply at once to a machine's own memory: its free memory, the control groups of the process (those
of a container, a batch system or a systemd unit, each inside another), and the limits of `ulimit`. The smallest counts.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import torch

from clearhead.errors import OutOfMemory

ROOT = Path("/")
CACHES = ("active_file", "inactive_file", "slab_reclaimable")
"""Parts of a group's usage that the kernel reclaims before it kills a process."""


@dataclass(frozen=True)
class MemoryLimit:
    """The bytes that one limit still leaves."""

    n_bytes: int
    kind: str
    """The source of the limit, in words that follow a number of bytes."""
    counts_mapped: bool = False
    """True if mapped files count, which the kernel could drop from memory at any time."""

    def __str__(self) -> str:
        return f"{gigabytes(self.n_bytes)} {self.kind}"


def available_memory(device: torch.device) -> list[MemoryLimit]:
    """The bytes that each limit leaves on the device, the tightest first; empty if the device does not say."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # PyTorch's allocator can reuse what it holds and does not use.
        free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return [MemoryLimit(free, f"of free memory on {device}")]
    return memory_limits() if device.type == "cpu" else []


def memory_limits(root: Path = ROOT) -> list[MemoryLimit]:
    """The bytes that each limit leaves, the tightest first; empty if unknown. `root` holds proc and sys."""
    found = [*_machine(root), *_groups(root), *_limits(root)]
    return sorted(found, key=lambda room: room.n_bytes)


def _machine(root: Path) -> Iterator[MemoryLimit]:
    """The memory that new processes can take without swapping, as the kernel estimates it."""
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            yield MemoryLimit(1024 * int(line.split()[1]), "of free memory")


def gigabytes(n_bytes: float) -> str:
    """A readable number of bytes."""
    if n_bytes >= 1e10:
        return f"{n_bytes / 1e9:,.0f} GB"
    return f"{n_bytes / 1e9:.2g} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.2g} MB"


def require_weights(where: object, device: torch.device, *, allocated: int, mapped: int = 0) -> None:
    """Raises OutOfMemory unless so many bytes of weights fit into memory. `mapped` ones stay in their files."""
    for room in available_memory(device):
        needed = allocated + (mapped if room.counts_mapped else 0)
        if needed > room.n_bytes:
            raise OutOfMemory(
                f"{where}: expected weights that fit into {room}, got ones that need {gigabytes(needed)};"
                " try a smaller model, the dtype they are stored in, or bfloat16"
            )


# --- control groups ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Version:
    """The file names of one version of control groups."""

    limits: tuple[str, ...]
    usage: str
    prefix: str = ""
    """Begins the names of figures in memory.stat that include inner groups."""


# Above memory.high the kernel slows a process almost to a halt, so that is a limit too.
_V2 = _Version(("memory.max", "memory.high"), "memory.current")
_V1 = _Version(("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_")


def _groups(root: Path) -> Iterator[MemoryLimit]:
    """The memory that each control group leaves, from the group of the process up to the mounted one."""
    for version, folder in group_folders(root):
        used = _number(folder / version.usage) or 0
        stat = dict(line.split(maxsplit=1) for line in _lines(folder / "memory.stat") if " " in line)
        caches = sum(int(stat.get(version.prefix + name, 0)) for name in CACHES)
        for name in version.limits:
            limit = _number(folder / name)
            if limit is not None:
                shown = "/" / (folder / name).relative_to(root)
                yield MemoryLimit(max(0, limit - max(0, used - caches)), f"that the control group leaves ({shown})")


def group_folders(root: Path) -> Iterator[tuple[_Version, Path]]:
    """The folders of the groups whose memory limits apply to this process, its own first."""
    own = dict(_own_groups(root))
    mounts = [mount for mount in _mounts(root) if mount[0] in own]
    # In some containers the group is outside the mount. The mounted group is then the closest visible one.
    inside = [mount for mount in mounts if own[mount[0]].is_relative_to(mount[1])]
    for version, top, place in inside or mounts:
        group = own[version]
        path = group.relative_to(top) if group.is_relative_to(top) else PurePosixPath()
        for part in (path, *path.parents):
            folder = root / place.relative_to("/") / part
            if ".." not in part.parts and folder.is_dir():
                yield version, folder


def _own_groups(root: Path) -> Iterator[tuple[_Version, PurePosixPath]]:
    """The process's group in the hierarchy of each version, from lines such as `4:memory:/job` and `0::/job`."""
    for line in _lines(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        path = PurePosixPath(path.removesuffix(" (deleted)"))
        if "memory" in controllers.split(","):
            yield _V1, path
        elif number == "0" and not controllers:
            yield _V2, path


def _mounts(root: Path) -> Iterator[tuple[_Version, PurePosixPath, PurePosixPath]]:
    """The group at the top of each mounted hierarchy, and the folder of the mount."""
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), [*after.split(), "", "", ""][:3]
        version = {"cgroup2": _V2, "cgroup": _V1 if "memory" in options.split(",") else None}.get(kind)
        if version is not None and len(fields) > 4:
            yield version, PurePosixPath(_unescaped(fields[3])), PurePosixPath(_unescaped(fields[4]))


def _unescaped(text: str) -> str:
    """A path of mountinfo, where a space is written as its octal number."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


# --- ulimit ------------------------------------------------------------------------------------------------------


def _limits(root: Path) -> Iterator[MemoryLimit]:
    """The bytes that RLIMIT_AS and RLIMIT_DATA leave.

    They count addresses, and a process always takes more addresses than memory. Each byte of a tensor needs an address,
    so these limits never refuse a tensor that fits.
    """
    if sys.platform == "win32":
        return
    import resource

    pages = [int(word) for word in " ".join(_lines(root / "proc/self/statm")).split()]
    if len(pages) < 6:
        return
    # statm: the pages of all addresses first; of private ones that can be written to, sixth.
    for kind, command, taken in (
        (resource.RLIMIT_AS, "ulimit -v", pages[0]),
        (resource.RLIMIT_DATA, "ulimit -d", pages[5]),
    ):
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY:
            left = max(0, limit - taken * resource.getpagesize())
            yield MemoryLimit(left, f"that `{command}` leaves", counts_mapped=True)


def _lines(path: Path) -> list[str]:
    """The lines of a file of the system; none if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []


def _number(path: Path) -> int | None:
    """The number in a file of a control group; None for `max` and for a missing file."""
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None
