"""What ends a server, and what it leaves as it was."""

import signal
import threading

import pytest

from clearhead.errors import Interrupted
from clearhead.web import wait


class Signalled(threading.Event):
    """One during whose wait SIGTERM comes."""

    def wait(self, timeout: float | None = None) -> bool:
        signal.raise_signal(signal.SIGTERM)
        return True


def test_sigterm_is_an_end_like_any_other():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted, match="stopped by SIGTERM") as stopped:
        wait(Signalled())
    assert stopped.value.exit_code == 143
    assert signal.getsignal(signal.SIGTERM) == before


def test_other_threads_wait_too():
    ended = threading.Event()
    thread = threading.Thread(target=wait, args=(ended,))
    thread.start()
    ended.set()
    thread.join(10)
    assert not thread.is_alive()
