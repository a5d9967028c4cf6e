"""`Reply`: a JSON part and tensors in one safetensors file."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from clearhead.brief import brief
from clearhead.errors import UserError, sizes

MOST_BYTES = 64 << 20
"""The limit for the tensors of one reply."""


@dataclass(frozen=True)
class Reply:
    """The answer to a question."""

    __repr__ = brief

    json: Mapping[str, Any]
    tensors: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])

    def encode(self, *, limited: bool = True) -> bytes:
        """One safetensors file, the JSON part in its metadata.

        Raises UserError for more than MOST_BYTES of tensors, if it is `limited`, and if edits made a figure NaN or
        infinite.
        """
        if limited:
            check_size(sum(tensor.nbytes for tensor in self.tensors.values()))
        try:
            text = json.dumps(self.json, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except ValueError:
            raise UserError("reply: expected finite figures, got NaN or infinity; try another edit") from None
        return save({name: _apart(tensor) for name, tensor in self.tensors.items()}, {"reply": text})


def _apart(tensor: Tensor) -> Tensor:
    """A contiguous copy on the CPU, as safetensors needs it."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def check_size(n_bytes: int) -> None:
    """Raises UserError if a reply is too large to send."""
    if n_bytes > MOST_BYTES:
        most, got = sizes(MOST_BYTES, n_bytes)
        raise UserError(f"reply: expected at most {most} of numbers, got {got}; ask for fewer at a time, or for rows")
