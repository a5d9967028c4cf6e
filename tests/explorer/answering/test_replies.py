"""A reply is one safetensors file, each tensor by itself, not beyond its limit."""

import json

import pytest
import torch
from safetensors.torch import load

from clearhead.errors import UserError
from clearhead.explorer.answering.questions import Reply


def test_views_and_shared_memory_are_written_row_by_row():
    whole = torch.arange(12.0).view(3, 4)
    content = Reply({"said": "ü", "n": [1, 2.5]}, {"turned": whole.T, "row": whole[1], "same": whole}).encode()
    tensors = load(content)
    assert torch.equal(tensors["turned"], whole.T)
    assert torch.equal(tensors["row"], whole[1])
    assert torch.equal(tensors["same"], whole)
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert json.loads(header["__metadata__"]["reply"]) == {"said": "ü", "n": [1, 2.5]}


def test_figures_that_are_no_numbers():
    with pytest.raises(UserError, match="reply: expected finite figures, got NaN or infinity"):
        Reply({"n": float("nan")}).encode()
