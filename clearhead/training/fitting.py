"""Checks that a run fits into memory before its network is allocated: first the model, then its batches."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from clearhead.config import ModelConfig
from clearhead.config.adapter import AdapterConfig
from clearhead.machine.device import device_named
from clearhead.model import Tokens, Transformer
from clearhead.planning.fit import require_host, require_memory, require_model, shape_of
from clearhead.planning.memory import Setting
from clearhead.randomness import key
from clearhead.recipe.training import Training
from clearhead.tasks.task import Task
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
