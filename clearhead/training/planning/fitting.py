"""Checks that a run fits into memory before its network is allocated: first the model, then its batches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

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
        shape = Shape(1, int(config.encoder is not None), int(config.decoder is not None))
        Estimate(config, self.training, shape, self.setting, self.device).require_model()

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
            Estimate(config, self.training, shape, self.setting, self.device, is_allocated).require_batch()

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
    """The memory that a run with batches of this shape on each rank needs, and the memory that is left.

    A compiled network keeps less than this estimate.
    """

    config: ModelConfig
    training: Training
    shape: Shape
    setting: Setting
    device: torch.device
    is_allocated: bool = False
    """Whether the weights, their mean and a teacher's exist already."""

    @cached_property
    def memory(self) -> PeakMemory:
        """The bytes of each part."""
        by_length = None if self.device.type == "cpu" else False
        explicit = {"explicit": True, "fused": False}.get(self.training.attention, by_length)
        setting, training = replace(self.setting, explicit=explicit), self.training
        network = network_of(self.config, setting.tensor)
        return memory_of(network, self.shape, setting, optimizer=training.optimizer, ema=training.keeps_mean)

    @cached_property
    def room(self) -> MemoryLimit | None:
        """The memory of the machine; None if it does not report it."""
        return next(iter(available_memory(self.device)), None)

    @property
    def there(self) -> int:
        """Bytes that the run already holds."""
        return self.memory.weights + self.memory.mean if self.is_allocated else 0

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
        """True if the run fits, or if the memory is not known."""
        return not self.lacks(self.needed)

    def lacks(self, n_bytes: int) -> bool:
        """Returns True if `n_bytes` exceed the memory that is left; False if the memory is not known."""
        return self.room is not None and n_bytes > self.room.n_bytes

    def require_model(self) -> None:
        """Raises OutOfMemory, which says what to lower, unless the network can be trained on some batch.

        The network may still become larger if its vocabulary is not known yet.
        """
        if not self.lacks(self.fixed):
            return
        memory, setting, teacher = self.memory, self.setting, teacher_bytes(self.setting)
        parts = {
            "weights": memory.weights - teacher,
            "gradients": memory.gradients,
            "optimizer": memory.optimizer,
            "mean of weights": memory.mean,
            "teacher": teacher,
            "activations": memory.activations + memory.logits,
        }
        remedies = [_smaller_model(self.config), *(["a smaller teacher"] if teacher else [])]
        if setting.weights == "fp32" and self.training.precision != "fp32" and setting.data * setting.tensor == 1:
            halved = replace(self, setting=replace(setting, weights="bf16", mixed=True), is_allocated=False)
            if halved.fits:
                remedies.insert(0, "--training.weights bf16")
        raise OutOfMemory(
            f"model: expected one that trains within {self.room}, got {network_of(self.config).weights:,} parameters"
            f" that need about {gigabytes(memory.total)}"
            f" ({', '.join(f'{name} {gigabytes(n_bytes)}' for name, n_bytes in parts.items() if n_bytes)});"
            f" try {', or '.join(remedies)}"
        )

    def require_batch(self) -> None:
        """Raises OutOfMemory, which says what to lower, unless a run on such batches fits."""
        self.require_model()
        if self.room is None or self.fits:
            return
        config, training, shape, memory = self.config, self.training, self.shape, self.memory
        pictures = reads_pictures(config)
        field, size = ("batch_size", shape.rows) if pictures else ("training.max_tokens", training.max_tokens)
        grows = memory.activations + memory.logits
        share = (self.room.n_bytes - (self.needed - grows)) / grows
        lower, remedies = int(0.9 * share * size), list[str]()
        if lower >= max(1, size // shape.rows):
            more = -(-training.accumulate * size // lower)
            remedies.append(f"--{field} {lower} with --training.accumulate {more}, the same update")
        if not self.setting.checkpointed and not self.lacks(self.needed - memory.activations):
            remedies.append("--training.checkpoint_activations true")
        raise OutOfMemory(
            f"{field}: expected a batch that fits into {self.room}, got one of"
            f" {shape.rows} x {shape.source + shape.target} tokens that needs about {gigabytes(self.needed)};"
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


def _smaller_model(config: ModelConfig) -> str:
    """The sizes that make a model large, as fields of a recipe."""
    stack = config.output
    sizes = {"d_model": stack.d_model, "d_ff": stack.d_ff, "n_layers": stack.n_layers}
    return f"a smaller model: model.stacks has {', '.join(f'{name} {size:,}' for name, size in sizes.items())}"


def shape_of(config: ModelConfig, inputs: Sequence[Tokens]) -> Shape:
    """The shape of a batch from what each stack reads."""
    stacks = zip(config.stacks.items(), inputs, strict=True)
    lengths = {name: stack.fixed_length or tokens.grid[1] for (name, stack), tokens in stacks}
    return Shape(inputs[0].grid[0], lengths.get("encoder", 0), lengths.get("decoder", 0))
