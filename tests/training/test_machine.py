import sys
from pathlib import Path

import pytest
import torch

from clearhead.errors import UserError
from clearhead.recipe.training import Training
from clearhead.training.machine import hand_back_freed_memory, keep_freed_memory, prepare_machine


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


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_kept_memory_is_handed_back_when_told():
    def pages() -> int:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])

    keep_freed_memory()
    large = torch.ones(25_000_000)
    n_pages = large.nbytes // 4096
    del large
    held = pages()
    hand_back_freed_memory()
    assert pages() < held - n_pages // 2
