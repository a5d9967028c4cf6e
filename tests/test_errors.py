"""What counts as memory that ran out, and what such an error comes to on the command line."""

import errno

import pytest

from clearhead.commands.failures import explained
from clearhead.errors import OutOfMemory, UserError, is_memory


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
def test_memory_that_ran_out_ends_in_one_line_and_code_3(error: Exception) -> None:
    assert is_memory(error)
    told = explained(error, "train")
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
def test_other_errors_are_not_taken_for_it(error: Exception) -> None:
    assert not is_memory(error)
    told = explained(error, "train")
    assert told is None or told[1] == 2
