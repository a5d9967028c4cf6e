"""Before the first step: whether a run fits into the memory there is, and what to lower where it does not."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import torch

from clearhead.config import ModelConfig, PatchInput
from clearhead.errors import OutOfMemory
from clearhead.model import Tokens
from clearhead.planning.memory import Memory, Network, Setting, Shape, memory_of
from clearhead.recipe.training import Training

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Estimate:
    """What a run will take beyond what it has already taken, and what there is, in bytes."""

    memory: Memory
    needed: int
    available: int | None
    """None where the machine does not say."""

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        training: Training,
        shape: Shape,
        setting: Setting,
        device: torch.device,
    ) -> Self:
        """For batches of this shape on each rank; weights and their mean are on the device already.

        A compiled network keeps less than this says.
        """
        by_length = None if device.type == "cpu" else False
        explicit = {"explicit": True, "fused": False}.get(training.attention, by_length)
        setting = replace(setting, explicit=explicit)
        network = Network(config, setting.tensor)
        memory = memory_of(network, shape, setting, optimizer=training.optimizer, ema=training.ema is not None)
        return cls(memory, memory.total - memory.weights - memory.mean, available_memory(device))

    @property
    def fits(self) -> bool:
        """Also where nobody knows how much there is."""
        return self.available is None or self.needed <= self.available


def require_memory(
    config: ModelConfig,
    training: Training,
    shape: Shape,
    setting: Setting,
    device: torch.device,
) -> Estimate:
    """What a run will take, if that is there; else OutOfMemory says in one line what to lower."""
    found = Estimate.of(config, training, shape, setting, device)
    if found.available is None or found.fits:
        return found
    remedies = [*_smaller_batch(found, training, shape, found.available)]
    if not setting.checkpointed and found.needed - found.memory.activations < found.available:
        remedies.append("--training.checkpoint_activations true")
    raise OutOfMemory(
        f"training.max_tokens: expected a batch that fits into {_gb(found.available)} of free memory, got one of"
        f" {shape.rows} x {shape.source + shape.target} tokens that needs about {_gb(found.needed)};"
        f" try {', or '.join(remedies or ['a smaller model', 'shorter texts'])}"
    )


def _smaller_batch(found: Estimate, training: Training, shape: Shape, available: int) -> Iterator[str]:
    """The batch that fits, and how many of them make the same update; nothing where none does."""
    memory = found.memory
    grows = memory.activations + memory.logits
    share = (available - (found.needed - grows)) / grows
    lower = int(0.9 * share * training.max_tokens)
    if lower >= training.max_tokens // shape.rows:
        more = -(-training.accumulate * training.max_tokens // lower)
        yield f"--training.max_tokens {lower} with --training.accumulate {more}, the same update"


def shape_of(config: ModelConfig, inputs: Sequence[Tokens]) -> Shape:
    """The shape of a batch from what each stack reads."""
    both = {"encoder": config.encoder, "decoder": config.decoder}
    stacks = {name: stack for name, stack in both.items() if stack is not None}
    lengths = {
        name: stack.input.length if isinstance(stack.input, PatchInput) else tokens.grid[1]
        for (name, stack), tokens in zip(stacks.items(), inputs, strict=True)
    }
    return Shape(
        rows=inputs[0].grid[0],
        source=lengths.get("encoder", 0),
        target=lengths.get("decoder", 0),
    )


def available_memory(device: torch.device) -> int | None:
    """Bytes that a process may still take on the device; None where it cannot be known."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # What PyTorch's allocator holds and does not use is free to this process too.
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if device.type != "cpu":
        return None
    known = [n for n in (_machine_memory(), _group_memory()) if n is not None]
    return min(known, default=None)


def _machine_memory() -> int | None:
    """What the kernel says new processes can have without swapping."""
    try:
        lines = MEMINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return 1024 * kilobytes[0] if kilobytes else None


def _group_memory() -> int | None:
    """What a container's limit leaves, by control groups of version 2 or 1; caches of files do not count as used."""
    for limit, used, cache in (
        ("memory.max", "memory.current", "memory.stat"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
    ):
        try:
            total = (CGROUP / limit).read_text(encoding="utf-8").strip()
            current = int((CGROUP / used).read_text(encoding="utf-8"))
            stat = (CGROUP / cache).read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError):
            continue
        if not total.isdigit():
            return None
        caches = {name: int(n) for name, n in map(str.split, stat) if name.endswith("active_file")}
        files = (caches.get(f"total_{kind}", caches.get(kind, 0)) for kind in ("active_file", "inactive_file"))
        return max(0, int(total) - current + sum(files))
    return None


def _gb(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.2g} GB" if n_bytes < 1e10 else f"{n_bytes / 1e9:,.0f} GB"
