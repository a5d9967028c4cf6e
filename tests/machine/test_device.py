import sys

import pytest
import torch

from clearhead.errors import UserError
from clearhead.machine.device import prepare_machine
from clearhead.recipe.training import Training
from tests import processes


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
    # A build for CUDA names it on a machine without a driver too.
    built = torch.device("cuda")
    monkeypatch.setattr(
        torch.accelerator, "current_accelerator", lambda check_available=False: None if check_available else built
    )
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert prepare_machine(Training()) == torch.device("cpu")
    for device in ("cuda", "mps"):
        with pytest.raises(UserError, match=f"^device: .* got '{device}'; try --device cpu"):
            prepare_machine(Training(device=device))


MEMORY = """
from pathlib import Path
import torch
from clearhead.machine.device import hand_back_freed_memory, keep_freed_memory

def megabytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

keep_freed_memory()
large = torch.ones(25_000_000)
del large
print(megabytes())
hand_back_freed_memory()
print(megabytes())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_kept_memory_is_handed_back_when_told():
    """In a process whose memory nothing else has been in."""
    told = processes.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    held, left = map(float, told.stdout.split())
    assert left < held - 50
