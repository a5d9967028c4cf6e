"""Reads and writes adapters in the form of the library PEFT: adapter_config.json and adapter_model.safetensors.

PEFT keeps one pair of matrices for each matrix of theirs. Where theirs holds several of ours, such as queries, keys and
values in one, the parts share A and have their rows of B. Parts with matrices A of their own are written as one block
after the other, at a rank as many times larger. The change of a token table becomes a part of it, which is then written
whole. A head that a config ties to the table is a matrix of its own as soon as one of the two changes, as in PEFT.
"""

import logging
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from clearhead.brief import brief
from clearhead.checkpoints.weights.documents import AGAIN, CONFIG_LIMIT, read_json, short, shown
from clearhead.checkpoints.weights.elsewhere import ADAPTER, ADAPTER_HEAD, ADAPTER_WEIGHTS
from clearhead.config import ClassificationHead, Head, ModelConfig, SpanHead, TaggingHead
from clearhead.errors import UserError, reason
from clearhead.recipe.contract import FILE, Contract
from clearhead.storage.tensors import check_finite

_log = logging.getLogger("clearhead")

TOP = "base_model.model."
PARTS = {"lora_A.weight": "down", "lora_B.weight": "up", "lora_magnitude_vector": "magnitude"}
TABLE = {"lora_embedding_A": "table_down", "lora_embedding_B": "table_up"}
"""The end of a tensor's name, and our name for it."""
WRAPPED = ".base_layer."
"""The part of a name that says that the tensor is one of the model below an adapter."""
PLAIN_INIT = (True, False, None, "gaussian", "eva", "orthogonal")
"""First values that leave the model below the adapter as it was."""
BASE_BITS = "clearhead_base_bits"
"""Our field of the bits of the model below. PEFT does not know it, and warns of it."""
READ = frozenset(
    f"{BASE_BITS} alpha_pattern auto_mapping base_model_name_or_path bias exclude_modules fan_in_fan_out inference_mode"
    " init_lora_weights layers_pattern layers_to_transform lora_alpha lora_dropout megatron_core modules_to_save"
    " peft_type peft_version qalora_group_size r rank_pattern revision target_modules task_type use_dora"
    " use_rslora".split()
)
"""Fields that are read, or that the tensors' names make superfluous. Any other must be empty."""


@dataclass(frozen=True)
class SavedAdapter:
    """The content of an adapter's folder."""

    __repr__ = brief

    where: Path
    document: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    """By the name of the tensor in the whole model, and for adapters that of the matrix with `.down`, `.up` or
    `.magnitude`."""
    kept: Mapping[str, Any] | None
    """Our description of the head, if we wrote the folder."""
    contract: Contract = field(default_factory=Contract)

    @classmethod
    def read(cls, folder: Path) -> "SavedAdapter":
        """Raises UserError for another kind of adapter, and for a file that is damaged or of an older form."""
        where = folder / ADAPTER
        document = read_json(where, limit=CONFIG_LIMIT)
        if document.get("peft_type") != "LORA":
            got = short(document.get("peft_type"))
            raise UserError(f"{where}:peft_type: expected LORA, got {got}; try merging it with PEFT: merge_and_unload")
        init = document.get("init_lora_weights")
        odd = {name: value for name, value in document.items() if name not in READ and value}
        odd |= {} if init in PLAIN_INIT else {"init_lora_weights": init}
        for name, value in odd.items():
            expected = f"{where}:{shown(name)}: expected an adapter without it, got {short(value)}"
            raise UserError(f"{expected}; try merging it with PEFT: merge_and_unload, then save_pretrained")
        path = folder / ADAPTER_WEIGHTS
        if not path.is_file():
            raise UserError(f"{path}: expected the adapter's weights, got none; save it again with safetensors")
        try:
            found = load_file(path)
        except (SafetensorError, OSError, RuntimeError, ValueError) as error:
            raise UserError(f"{path}: expected a whole safetensors file, got {reason(error)}; {AGAIN}") from error
        check_finite(found, where=str(path), remedy=AGAIN)
        kept = read_json(folder / ADAPTER_HEAD, limit=CONFIG_LIMIT) if (folder / ADAPTER_HEAD).is_file() else None
        tensors = {_our_end(name.removeprefix(TOP)): tensor for name, tensor in found.items()}
        under = folder / FILE
        contract = Contract.read(read_json(under, limit=CONFIG_LIMIT), under) if under.is_file() else Contract()
        if document.get(BASE_BITS) != contract.base_bits:
            got = f"{short(document.get(BASE_BITS))} in {ADAPTER}:{BASE_BITS} and {contract.base_bits} in {FILE}"
            raise UserError(f"{folder}: expected the bits of the model below in both files, got {got}; {AGAIN}")
        return cls(path, document, tensors, kept, contract)

    @property
    def base(self) -> str:
        """The model that it is of. Raises UserError if the folder does not say."""
        name = self.document.get("base_model_name_or_path")
        if not isinstance(name, str) or not name:
            place = f"{self.where.parent / ADAPTER}:base_model_name_or_path"
            raise UserError(f"{place}: expected the model that it is of, got none; give load(…, base=FOLDER)")
        return name

    @property
    def revision(self) -> str | None:
        """The revision of that model."""
        return self.document.get("revision")

    @property
    def modules(self) -> list[str]:
        """The matrices with adapters, under their names without `.weight`."""
        return [name.removesuffix(".down") for name in self.tensors if name.endswith(".down")]

    @property
    def tables(self) -> list[str]:
        """The token tables with adapters, under their names without `.weight`."""
        return [name.removesuffix(".table_down") for name in self.tensors if name.endswith(".table_down")]

    @property
    def others(self) -> dict[str, Tensor]:
        """Tensors that replace tensors of the model, such as the tensors of a new head."""
        ends = tuple(f".{part}" for part in (*PARTS.values(), *TABLE.values()))
        found = {name.replace(WRAPPED, "."): one for name, one in self.tensors.items() if not name.endswith(ends)}
        return {name: tensor for name, tensor in found.items() if name not in self.below}

    @property
    def below(self) -> dict[str, Tensor]:
        """Tensors of the model below an adapter, which were not trained."""
        ends = (".weight",) if self.document.get("bias", "none") != "none" else (".weight", ".bias")
        named = {name: one for name, one in self.tensors.items() if WRAPPED in name and name.endswith(ends)}
        return {name.replace(WRAPPED, "."): tensor for name, tensor in named.items()}

    @property
    def dtype(self) -> torch.dtype:
        """The type of its numbers."""
        return next((tensor.dtype for tensor in self.tensors.values()), torch.float32)

    def number(self, field: str, module: str, default: float) -> float:
        """The value of a field for one matrix, from the table of patterns of that field."""
        patterns = self.document.get(f"{field}_pattern") or {}
        fits = (value for key, value in patterns.items() if re.match(rf"(.*\.)?({key})$", module))
        return float(next(fits, default))

    def scale(self, module: str, rank: int) -> float:
        """The factor of the change of one matrix."""
        alpha = self.number("alpha", module, self.document.get("lora_alpha") or 8)
        return alpha / (math.sqrt(rank) if self.document.get("use_rslora") else rank)

    def head(self, config: ModelConfig) -> Head | None:
        """The head that was trained with the adapter; None for that of the model itself."""
        task, sizes = self.document.get("task_type"), [len(t) for t in self.others.values() if t.ndim == 2]
        if self.kept is not None:
            return ModelConfig.model_validate({**dict(config), "head": self.kept}).head
        if task not in ("SEQ_CLS", "TOKEN_CLS", "QUESTION_ANS") or not sizes:
            return None
        if task == "QUESTION_ANS":
            return SpanHead()
        if task == "TOKEN_CLS":
            return TaggingHead(n_labels=min(sizes))
        place: dict[str, Any] = {"pool": "last"} if config.decoder is not None else {}
        return ClassificationHead(n_labels=min(sizes), **place)


def _our_end(name: str) -> str:
    for theirs, ours in (PARTS | TABLE).items():
        if name.endswith((f".{theirs}", f".{theirs}.weight")):
            return f"{name.partition(f'.{theirs}')[0]}.{ours}"
    return name
