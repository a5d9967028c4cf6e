"""No test waits for a process without an end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import processes

FOREVER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
GRANDCHILD = f"""
import subprocess, sys
subprocess.Popen({FOREVER!r}).wait()
"""


@pytest.fixture
def ignored() -> Iterator[None]:
    """SIGINT ignored, as in a shell's background job."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_process_that_does_not_end_is_killed():
    with pytest.raises(subprocess.TimeoutExpired):
        processes.run(FOREVER, capture_output=True, text=True, timeout=0.5)
    with processes.started(FOREVER, stdout=subprocess.PIPE, timeout=5) as process:
        assert process.stdout.read() == b"up\n", "which ends when it is killed"
    assert process.returncode == -signal.SIGKILL


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks into /proc")
def test_its_children_are_killed_too():
    with processes.started([sys.executable, "-c", GRANDCHILD], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"up\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert children
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{child}/cwd").exists() for child in children):  # A zombie has none.
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_process_gets_the_default_signals(ignored: None):
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert processes.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "True\n"
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    plain = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('still here')"]
    assert processes.run(plain, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout == b""


def test_what_is_said_and_the_exit_code():
    code = "import sys; print(sys.stdin.read().upper()); sys.exit(3)"
    command = [sys.executable, "-c", code]
    done = processes.run(command, input="a", capture_output=True, text=True, env=os.environ)
    assert (done.returncode, done.stdout, done.stderr) == (3, "A\n", "")
    with pytest.raises(subprocess.CalledProcessError):
        processes.run(command, input="a", capture_output=True, text=True, check=True)
