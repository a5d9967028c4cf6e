"""Checks that a run fits into memory before its network is allocated: first the model, then its batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch

from clearhead.config import ModelConfig
from clearhead.config.adapter import AdapterConfig
from clearhead.errors import OutOfMemory
from clearhead.machine.device import device_named
from clearhead.machine.memory import MemoryLimit, available_memory, gigabytes
from clearhead.model import Tokens, Transformer
from clearhead.randomness import key
from clearhead.recipe.training import Training
from clearhead.tasks.task import Task
from clearhead.training.planning.memory import (
    PeakMemory,
    Setting,
    Shape,
    memory_of,
    network_of,
    reads_pictures,
    teacher_bytes,
)
from clearhead.training.ranks import ALONE, Ranks
from clearhead.training.sharding import is_sharded


@dataclass(frozen=True)
class Fitting:
    """What decides the memory of a run, besides its network and its batches. Checks nothing without `check_memory`."""

    training: Training
    ranks: Ranks = ALONE
    adapter: AdapterConfig | None = None
    teacher: ModelConfig | None = None

    def new_network(self, config: ModelConfig, task: Task) -> Transformer:
        """A network with new weights. Raises OutOfMemory unless a run of this task on it fits into memory."""
        self.check_run(config, task)
        torch.manual_seed(key(self.training.seed, "init"))
        return Transformer(config)

    def check_model(self, config: ModelConfig) -> None:
        """Raises OutOfMemory, which says what to lower, unless the network can be trained here on some batch.

        The check needs no data, so it comes before they are read.
        """
        if not self.training.check_memory:
            return
        if self.device.type != "cpu" or is_sharded(self.training, self.ranks):
            require_host(config)
        require_model(config, self.training, self.setting, self.device)

    def check_run(self, config: ModelConfig, task: Task) -> None:
        """Raises OutOfMemory unless the network and an update on the task's first batch fit into memory."""
        if not self.training.check_memory:
            return
        self.check_model(config)
        for examples in task.plan(seed=self.training.seed, epoch=0)[:1]:
            self.check_batch(config, task.collate(self.ranks.share(examples) or examples[:1]).inputs)

    def check_batch(self, config: ModelConfig, inputs: Sequence[Tokens], *, is_allocated: bool = False) -> None:
        """Raises OutOfMemory, which says what to lower, unless an update on batches like this one fits into memory.

        `is_allocated`: weights, their mean and a teacher's are on the device already.
        """
        if self.training.check_memory:
            shape = shape_of(config, inputs)
            require_memory(config, self.training, shape, self.setting, self.device, is_allocated=is_allocated)

    @property
    def device(self) -> torch.device:
        """The device of this rank."""
        return self.ranks.device(device_named(self.training.device))

    @property
    def setting(self) -> Setting:
        """The setting in which each rank of this run computes."""
        training, ranks = self.training, self.ranks
        return Setting(
            parallel="fsdp" if is_sharded(training, ranks) else "ddp",
            data=ranks.data_size,
            tensor=ranks.tensor_size,
            accumulate=training.accumulate,
            checkpointed=training.checkpoint_activations,
            chunked=training.chunked_loss,
            # Otherwise the probe may try float32 too.
            mixed=training.precision == "bf16" or training.weights == "bf16",
            weights=training.weights,
            adapter=self.adapter,
            teacher=self.teacher,
        )


@dataclass(frozen=True)
class Estimate:
    """The memory that a run needs, and the memory that is left."""

    memory: PeakMemory
    there: int
    """Bytes that the run already holds."""
    room: MemoryLimit | None
    """The memory of the machine; None if it does not report it."""

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        training: Training,
        shape: Shape,
        setting: Setting,
        device: torch.device,
        *,
        is_allocated: bool = False,
    ) -> Self:
        """The estimate for batches of this shape on each rank.

        With `is_allocated`, the weights, their mean and a teacher's exist already.

        A compiled network keeps less than this estimate.
        """
        by_length = None if device.type == "cpu" else False
        explicit = {"explicit": True, "fused": False}.get(training.attention, by_length)
        setting = replace(setting, explicit=explicit)
        network = network_of(config, setting.tensor)
        memory = memory_of(network, shape, setting, optimizer=training.optimizer, ema=training.ema is not None)
        there = memory.weights + memory.mean if is_allocated else 0
        return cls(memory, there, next(iter(available_memory(device)), None))

    @property
    def needed(self) -> int:
        """Bytes that the run still needs."""
        return self.memory.total - self.there

    @property
    def fixed(self) -> int:
        """The bytes needed without any batch, which only a smaller model lowers."""
        return self.memory.resting + self.memory.gradients + self.memory.update - self.there

    @property
    def fits(self) -> bool:
        """Whether the run fits. True if the memory is not known."""
        return not self.lacks(self.needed)

    def lacks(self, n_bytes: int) -> bool:
        """Whether `n_bytes` exceed the memory that is left. False if the memory is not known."""
        return self.room is not None and n_bytes > self.room.n_bytes


def require_model(config: ModelConfig, training: Training, setting: Setting, device: torch.device) -> None:
    """Raises OutOfMemory, which says what to lower, unless the network can be trained on some batch.

    The network may still become larger if its vocabulary is not known yet.
    """
    shape = Shape(1, int(config.encoder is not None), int(config.decoder is not None))
    found = Estimate.of(config, training, shape, setting, device)
    if found.lacks(found.fixed):
        raise _too_large(found, config, training, shape, setting, device)


def require_memory(
    config: ModelConfig,
    training: Training,
    shape: Shape,
    setting: Setting,
    device: torch.device,
    *,
    is_allocated: bool = False,
) -> Estimate:
    """The estimate of a run that fits. Raises OutOfMemory, which says what to lower, for one that does not."""
    found = Estimate.of(config, training, shape, setting, device, is_allocated=is_allocated)
    if found.lacks(found.fixed):
        raise _too_large(found, config, training, shape, setting, device)
    if found.room is None or found.fits:
        return found
    remedies = [*_smaller_batch(found, config, training, shape, found.room.n_bytes)]
    if not setting.checkpointed and not found.lacks(found.needed - found.memory.activations):
        remedies.append("--training.checkpoint_activations true")
    field = "batch_size" if reads_pictures(config) else "training.max_tokens"
    raise OutOfMemory(
        f"{field}: expected a batch that fits into {found.room}, got one of"
        f" {shape.rows} x {shape.source + shape.target} tokens that needs about {gigabytes(found.needed)};"
        f" try {', or '.join(remedies or [_smaller_model(config), 'shorter texts'])}"
    )


def require_host(config: ModelConfig) -> None:
    """Raises OutOfMemory unless the whole network fits into the machine's main memory, where its weights are drawn."""
    needed, room = 4 * network_of(config).weights, next(iter(available_memory(torch.device("cpu"))), None)
    if room is not None and needed > room.n_bytes:
        raise OutOfMemory(
            f"model: expected weights that fit into {room}, where they are drawn, got {gigabytes(needed)};"
            f" try {_smaller_model(config)}"
        )


def _too_large(
    found: Estimate, config: ModelConfig, training: Training, shape: Shape, setting: Setting, device: torch.device
) -> OutOfMemory:
    """The error for a model that is too large for any batch. It lists what each part needs."""
    memory, teacher = found.memory, teacher_bytes(setting)
    parts = {
        "weights": memory.weights - teacher,
        "gradients": memory.gradients,
        "optimizer": memory.optimizer,
        "mean of weights": memory.mean,
        "teacher": teacher,
        "activations": memory.activations + memory.logits,
    }
    remedies = [_smaller_model(config), *(["a smaller teacher"] if teacher else [])]
    if setting.weights == "fp32" and training.precision != "fp32" and setting.data * setting.tensor == 1:
        halved = replace(setting, weights="bf16", mixed=True)
        smaller = Estimate.of(config, training, shape, halved, device)
        if smaller.fits:
            remedies.insert(0, "--training.weights bf16")
    return OutOfMemory(
        f"model: expected one that trains within {found.room}, got {network_of(config).weights:,} parameters that need"
        f" about {gigabytes(memory.total)}"
        f" ({', '.join(f'{name} {gigabytes(n_bytes)}' for name, n_bytes in parts.items() if n_bytes)});"
        f" try {', or '.join(remedies)}"
    )


def _smaller_model(config: ModelConfig) -> str:
    """The sizes that make a model large, as fields of a recipe."""
    stack = config.output
    sizes = {"d_model": stack.d_model, "d_ff": stack.d_ff, "n_layers": stack.n_layers}
    return f"a smaller model: model.stacks has {', '.join(f'{name} {size:,}' for name, size in sizes.items())}"


def _smaller_batch(
    found: Estimate, config: ModelConfig, training: Training, shape: Shape, available: int
) -> Iterator[str]:
    """The batch that fits, and how many make the same update. Yields nothing if none fits."""
    memory = found.memory
    grows = memory.activations + memory.logits
    share = (available - (found.needed - grows)) / grows
    if reads_pictures(config):
        rows = int(0.9 * share * shape.rows)
        if rows:
            more = -(-training.accumulate * shape.rows // rows)
            yield f"--batch_size {rows} with --training.accumulate {more}, the same update"
        return
    lower = int(0.9 * share * training.max_tokens)
    if lower >= training.max_tokens // shape.rows:
        more = -(-training.accumulate * training.max_tokens // lower)
        yield f"--training.max_tokens {lower} with --training.accumulate {more}, the same update"


def shape_of(config: ModelConfig, inputs: Sequence[Tokens]) -> Shape:
    """The shape of a batch from what each stack reads."""
    both = {"encoder": config.encoder, "decoder": config.decoder}
    stacks = {name: stack for name, stack in both.items() if stack is not None}
    lengths = {
        name: stack.fixed_length or tokens.grid[1] for (name, stack), tokens in zip(stacks.items(), inputs, strict=True)
    }
    return Shape(
        rows=inputs[0].grid[0],
        source=lengths.get("encoder", 0),
        target=lengths.get("decoder", 0),
    )
