"""What counts as memory that ran out, what such an error comes to on the command line, and sizes in messages."""

import errno
import shutil

import pytest

from clearhead.cli.failures import explained
from clearhead.errors import OutOfMemory, Refusal, UserError, is_memory, refuse, sizes
from clearhead.storage.disk import check_space


def raised_for(error: Exception, cause: Exception, *, hidden: bool) -> Exception:
    """The first error, as raised while the second was handled."""
    try:
        try:
            raise cause
        except Exception as caught:
            raise error from (None if hidden else caught)
    except Exception as found:
        return found


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OutOfMemory("a batch"),
        RuntimeError("std::bad_alloc"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory: you tried ..."),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("can't start new thread"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        raised_for(UserError("model.safetensors: expected a whole file"), MemoryError(), hidden=False),
        raised_for(UserError("model.safetensors: expected a whole file"), MemoryError(), hidden=True),
        raised_for(KeyError("x"), OSError(errno.ENOMEM, "Cannot allocate memory"), hidden=True),
    ],
    ids=repr,
)
def test_memory_that_ran_out_ends_in_one_line_and_code_3(error: Exception):
    assert is_memory(error)
    told = explained(error)
    assert told is not None
    message, code = told
    assert code == 3
    assert "\n" not in message
    assert message == str(error) or message.startswith("out of memory; try ")


@pytest.mark.parametrize(
    "error",
    [
        UserError("prompt: expected one line, got 'out of memory'"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        OSError(errno.ENOSPC, "No space left on device"),
        ImportError("libgomp.so.1: cannot allocate memory in static TLS block"),
        raised_for(UserError("file: expected JSON"), ValueError("no JSON"), hidden=False),
    ],
    ids=repr,
)
def test_other_errors_are_not_taken_for_it(error: Exception):
    assert not is_memory(error)
    told = explained(error)
    assert told is None or told[1] == 2


# --- sizes ---


@pytest.mark.parametrize(
    ("n_bytes", "told"),
    [
        ((1230, 10), ["1.2 kB", "10 bytes"]),
        ((120_000, 119_999), ["120.000 kB", "119.999 kB"]),
        ((1_200_000_000, 1_199_000_000), ["1.200 GB", "1.199 GB"]),
        ((10**12, 999 * 10**9), ["1.0 TB", "999.0 GB"]),
        ((5 * 10**15, 0), ["5,000.0 TB", "0 bytes"]),
        ((12, 11), ["12 bytes", "11 bytes"]),
        ((3 * 10**9, 3 * 10**9), ["3.0 GB", "3.0 GB"]),
        ((10**15 + 1, 10**15), ["1,000.000000000001 TB", "1,000.000000000000 TB"]),
    ],
)
def test_sizes(n_bytes: tuple[int, ...], told: list[str]):
    assert sizes(*n_bytes) == told


@pytest.mark.parametrize("size", [1, 999, 30_000, 30_001, 10**9, 10**12])
def test_a_disk_with_a_byte_too_few_tells_two_sizes(tmp_path, monkeypatch, size: int):
    def left(free: int) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(free, 0, free))

    wanted = -(-size * 12 // 10)
    left(wanted)
    check_space(tmp_path, size)
    left(wanted - 1)
    with pytest.raises(UserError) as caught:
        check_space(tmp_path, size)
    need, got = sizes(wanted, wanted - 1)
    assert need != got
    assert f"expected {need} free for a checkpoint, got {got}; try" in str(caught.value)


def test_a_refusal_is_formatted_once_and_keeps_its_parts():
    error = refuse("x.toml:steps", "a number from 1 on", -1, "try 100")
    assert str(error) == "x.toml:steps: expected a number from 1 on, got -1; try 100"
    assert error.refusal == Refusal("x.toml:steps", "a number from 1 on", "-1", "try 100")
    assert error.field == "x.toml:steps"
    assert str(refuse("", "gelu")) == "expected gelu"
    assert (UserError("out of order", field="a").field, UserError("out of order").refusal) == ("a", None)
