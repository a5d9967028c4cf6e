import pytest
import torch

from clearhead.errors import UserError
from clearhead.recipe.training import Training
from clearhead.training.machine import prepare_machine


def test_device_and_threads():
    before = torch.get_num_threads()
    try:
        assert prepare_machine(Training(device="cpu", threads=2)) == torch.device("cpu")
        assert torch.get_num_threads() == 2
        assert prepare_machine(Training(device="cpu")) == torch.device("cpu")
        assert torch.get_num_threads() == 2, "None leaves them"
    finally:
        torch.set_num_threads(before)


def test_a_device_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert prepare_machine(Training()) == torch.device("cpu")
    for device in ("cuda", "mps"):
        with pytest.raises(UserError, match=f"device={device}.*try"):
            prepare_machine(Training(device=device))
