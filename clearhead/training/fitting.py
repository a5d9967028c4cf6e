"""Checks that a run fits into memory before its network is allocated: first the model, then its batches."""

from collections.abc import Sequence

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


def new_network(
    config: ModelConfig, task: Task, training: Training, ranks: Ranks = ALONE, *, teacher: ModelConfig | None = None
) -> Transformer:
    """A network with new weights. Raises OutOfMemory unless a run of this task on it fits into memory."""
    check_run(config, task, training, ranks, teacher=teacher)
    torch.manual_seed(key(training.seed, "init"))
    return Transformer(config)


def check_model(
    config: ModelConfig,
    training: Training,
    ranks: Ranks = ALONE,
    adapter: AdapterConfig | None = None,
    teacher: ModelConfig | None = None,
) -> None:
    """Raise OutOfMemory, which says what to lower, unless the network can be trained here on some batch.

    The check needs no data, so it comes before they are read.
    """
    if not training.check_memory:
        return
    device = ranks.device(device_named(training.device))
    if device.type != "cpu" or is_sharded(training, ranks):
        require_host(config)
    require_model(config, training, setting_of(training, ranks, adapter, teacher), device)


def check_run(
    config: ModelConfig,
    task: Task,
    training: Training,
    ranks: Ranks = ALONE,
    adapter: AdapterConfig | None = None,
    teacher: ModelConfig | None = None,
) -> None:
    """Raise OutOfMemory unless the network and an update on the task's first batch fit into memory."""
    if not training.check_memory:
        return
    check_model(config, training, ranks, adapter, teacher)
    for examples in task.plan(seed=training.seed, epoch=0)[:1]:
        inputs = task.collate(ranks.share(examples) or examples[:1]).inputs
        check_batch(config, inputs, training, ranks, adapter, teacher)


def check_batch(
    config: ModelConfig,
    inputs: Sequence[Tokens],
    training: Training,
    ranks: Ranks = ALONE,
    adapter: AdapterConfig | None = None,
    teacher: ModelConfig | None = None,
    *,
    is_allocated: bool = False,
) -> None:
    """Raises OutOfMemory, which says what to lower, unless an update on batches like this one fits into memory.

    `is_allocated`: weights, their mean and a teacher's are on the device already.
    """
    device, shape = ranks.device(device_named(training.device)), shape_of(config, inputs)
    setting = setting_of(training, ranks, adapter, teacher)
    require_memory(config, training, shape, setting, device, is_allocated=is_allocated)


def setting_of(
    training: Training, ranks: Ranks, adapter: AdapterConfig | None = None, teacher: ModelConfig | None = None
) -> Setting:
    """The setting in which each rank of this run computes."""
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
        adapter=adapter,
        teacher=teacher,
    )
