"""The state of a run, and how it becomes a checkpoint and is restored from one."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from pydantic import JsonValue
from torch import Tensor

from clearhead.config.adapter import AdapterConfig
from clearhead.machine.device import prepare_machine
from clearhead.model import Transformer
from clearhead.model.assign import merged
from clearhead.model.attention import Attention
from clearhead.model.fast import activation_checkpointing
from clearhead.model.heads import LanguageHead
from clearhead.model.linear import shapes
from clearhead.model.loss import NEVER
from clearhead.model.target_scaling import as_learned, as_saved, learn_in
from clearhead.recipe.training import Training
from clearhead.storage import checkpoints
from clearhead.storage.tensors import all_finite, model_tensors, restore, saved_tensors
from clearhead.tasks.task import Task
from clearhead.training.distillation import Distillation
from clearhead.training.freezing import GradualUnfreezing, freeze
from clearhead.training.optimizers import build
from clearhead.training.progress import Progress
from clearhead.training.ranks import ALONE, Ranks
from clearhead.training.rows import large_tables
from clearhead.training.sharding import divide, is_sharded, parts, replicated
from clearhead.training.update_rules import store_in_bfloat16


@dataclass
class Run:
    """A network in training: its weights, their mean, the optimizer and the position in the data."""

    network: Transformer
    task: Task
    config: Training
    folder: Path | None
    """The folder of the checkpoints; None writes none."""
    files: checkpoints.Checkpoint = field(default_factory=checkpoints.Checkpoint)
    """The files that every checkpoint holds besides the run's tensors: configuration, tokenizer."""
    progress: Progress = field(default_factory=Progress)
    ranks: Ranks = ALONE
    """The processes that train the network together."""
    changes: Mapping[str, JsonValue] = field(default_factory=dict)
    """Fields of `config` that have changed since the checkpoint from which it goes on, as [before, after]."""
    adapter: AdapterConfig | None = None
    """The adapters of the network, if it has some."""
    teacher: Transformer | None = None
    """The network whose answers it learns too."""

    def __post_init__(self) -> None:
        self.device = self.ranks.device(prepare_machine(self.config))
        self.network.to(self.device)
        learn_in(self.network, self.task.target_scale.unit)
        set_performance_options(self.network, self.config)
        freeze(self.network, self.config.freeze)
        self.unfreezing = GradualUnfreezing(self.network, self.config)
        self.is_sharded = is_sharded(self.config, self.ranks)
        # The mean of weights that never change is these weights, unless each network is divided.
        kept = {id(p): p for p in self.network.parameters() if not p.requires_grad and not self.is_sharded}
        self.mean = copy.deepcopy(self.network, kept).eval() if self.config.keeps_mean else None
        if self.config.weights == "bf16":
            store_in_bfloat16(self.network)
        for network in filter(None, (self.network, self.mean)):
            divide(network, self.config, self.ranks)
        self.optimizer = build(self.network, self.config.optimizer)
        self.tables = [] if self.ranks.size > 1 or self.config.compile else large_tables(self.network)
        n_numbers = sum(shape.numel() for shape in shapes(self.network))
        self.recomputes = not self.config.compile and n_numbers >= activation_checkpointing.WORTH_IT
        self.replica = replicated(self.network, self.config, self.ranks)
        self.distillation: Distillation | None = None
        if self.teacher is not None and self.config.teacher is not None:
            self.distillation = Distillation(self.network, self.teacher.to(self.device), self.config.teacher)
        # Each batch of sentence pairs has other lengths, for which one graph must do.
        dynamic = True if self.network.encoder and self.network.decoder else None
        self.forward: Callable[..., Tensor] = (
            torch.compile(self.replica, dynamic=dynamic) if self.config.compile else self.replica
        )

    @property
    def model(self) -> Transformer:
        """The network that is evaluated and saved: the mean of weights that `ema` or `blend` asks for."""
        return self.network if self.mean is None else self.mean

    @property
    def networks(self) -> dict[str, Transformer]:
        """The networks that training changes, by the file of a checkpoint that holds exactly their tensors."""
        found = {"training.safetensors": self.network} | ({"mean.safetensors": self.mean} if self.mean else {})
        is_model = {file: network is self.model is merged(self.model) for file, network in found.items()}
        return {"model.safetensors" if is_model[file] else file: network for file, network in found.items()}

    def checkpoint(self) -> checkpoints.Checkpoint:
        """The files of a checkpoint, from which to resume the run or load the model."""
        networks = {"model.safetensors": merged(self.model)} | self.networks
        tensors = {file: as_saved(network, saved_tensors(network)) for file, network in networks.items()}
        tensors["optimizer.safetensors"] = self.optimizer.state_tensors()
        state = vars(self.progress) | {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "device": str(self.device),
        }
        return checkpoints.Checkpoint(
            tensors={**self.files.tensors, **tensors},
            json={**self.files.json, "train.json": state},
            raw=self.files.raw,
        )

    def restore(self, folder: Path) -> None:
        """Set the run to the exact state of a checkpoint."""
        saved = checkpoints.load(folder)
        tensors, state = all_finite(saved.tensors, where=str(folder)), saved.json["train.json"]
        for file, network in self.networks.items():
            learned = as_learned(network, tensors[file])
            restore(network, parts(learned, like=model_tensors(network)), where=f"{folder}/{file}")
        state_tensors = parts(tensors["optimizer.safetensors"], like=self.optimizer.state_tensors())
        self.optimizer.load_state_tensors(state_tensors, where=f"{folder}/optimizer.safetensors")
        known = {name: state[name] for name in vars(Progress()) if name in state}
        self.progress = Progress(**known)  # pyrefly: ignore[bad-argument-type]


def set_performance_options(network: Transformer, config: Training) -> None:
    """Configure how the network's modules compute. No setting changes a result."""
    for stack in filter(None, (network.encoder, network.decoder)):
        stack.recompute = config.checkpoint_activations
    for module in network.modules():
        if isinstance(module, Attention):
            module.kernel = config.attention
        if isinstance(module, LanguageHead) and not config.chunked_loss:
            module.chunk = NEVER
