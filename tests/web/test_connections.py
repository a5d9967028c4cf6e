"""Clients that do nothing, over real sockets: they are hung up on, and nobody else waits for them."""

import asyncio
import errno
import http.client
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from clearhead import web
from clearhead.web import limits
from clearhead.web.limits import LEAST, MOST, ConnectionErrors, most_connections
from tests import processes
from tests.conftest import ROOT
from tests.web.apps import (
    HALF_A_BODY,
    HOLD,
    REFUSED_IN_ITS_BODY,
    UNREAD,
    WELL,
    client,
    is_hung_up,
    served,
    status,
)

IDLE = {
    "silent": b"",
    "half a head": b"GET / HTTP/1.1\r\nHost:",
    "half a body": HALF_A_BODY,
    "refused, with half a body": REFUSED_IN_ITS_BODY,
    "answered": WELL,
    "answered, with half a head": WELL + b"GET / HT",
    "many, and reads no answer": WELL * 20,
}


@pytest.fixture
def port() -> Iterator[int]:
    with served() as (port, _):
        yield port


@pytest.fixture
def impatient(monkeypatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.2)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("sent", IDLE.values(), ids=IDLE)
def test_who_does_nothing_is_hung_up_on(port: int, sent: bytes):
    with client(port, sent) as connection:
        assert is_hung_up(connection)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("begun", [b"", HALF_A_BODY, REFUSED_IN_ITS_BODY, WELL])
def test_a_byte_now_and_then_wins_no_time(port: int, begun: bytes):
    end = time.monotonic() + HOLD
    with client(port, begun) as connection, suppress(ConnectionError):
        while time.monotonic() < end:
            connection.sendall(b"x")
            time.sleep(0.05)
        pytest.fail("the connection is still open")


@pytest.mark.usefixtures("impatient")
def test_who_reads_nothing_is_hung_up_on():
    end = time.monotonic() + HOLD
    with served() as (port, running), client(port, UNREAD) as connection:
        connection.recv(1)
        while running.runner.server_state.connections:
            assert time.monotonic() < end
            time.sleep(0.01)


def test_each_answer_gives_the_client_all_of_its_time_again():
    with served() as (port, running):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HOLD)
        began, end = 0.0, time.monotonic() + HOLD
        for _ in range(3):
            connection.request("GET", "/")
            connection.getresponse().read()
            (one,) = running.runner.server_state.connections
            assert isinstance(one, limits.Connection)
            while one.clock is None or one.since <= began:
                assert time.monotonic() < end
                time.sleep(0.005)
            began = one.since
        connection.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost:", HALF_A_BODY, REFUSED_IN_ITS_BODY, UNREAD])
def test_a_crowd_keeps_nobody_out(monkeypatch, sent: bytes):
    monkeypatch.setattr(web, "most_connections", lambda: 8)
    with served() as (port, running), ExitStack() as crowd:
        for _ in range(60):
            crowd.enter_context(client(port, sent))
        assert status(port) == b"200"
        assert len(running.runner.server_state.connections) <= 8 + limits.MARGIN


def test_who_was_waited_for_longest_makes_room(monkeypatch):
    monkeypatch.setattr(web, "most_connections", lambda: 8)
    with served() as (port, _), ExitStack() as crowd:
        first, *_, last = [crowd.enter_context(client(port)) for _ in range(60)]
        assert status(port) == b"200"
        assert is_hung_up(first)
        last.sendall(WELL)
        assert last.recv(1 << 16)[9:12] == b"200"


CHILD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from tests.web.apps import served
with served() as (port, _):
    print(port, flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="descriptors have no limit there")
def test_more_silent_connections_than_descriptors():
    command = [sys.executable, "-c", CHILD]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with processes.started(command, cwd=ROOT, text=True, **pipes) as child:
        port = int(child.stdout.readline())
        with ExitStack() as crowd:
            for _ in range(300):
                crowd.enter_context(client(port))
            assert [status(port) for _ in range(3)] == [b"200"] * 3
        _, said = child.communicate("", timeout=HOLD)
    assert said.count("\n") <= 1, said[:2000]
    assert child.returncode == 0


def test_the_most_is_below_the_limit_of_open_files(monkeypatch):
    resource = pytest.importorskip("resource")
    for limit in (64, 256, 1024, 1 << 20, resource.RLIM_INFINITY):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        assert LEAST <= most_connections() <= MOST
        if limit == 256:
            assert most_connections() < 256 - limits.RESERVE


def test_the_end_waits_for_no_client():
    with served() as (port, running), ExitStack() as crowd:
        for sent in (*IDLE.values(), UNREAD, UNREAD):
            crowd.enter_context(client(port, sent))
        assert status(port) == b"200"
        assert running.stop()


def test_a_complaint_comes_once_in_a_while(caplog):
    loop, complaints = asyncio.new_event_loop(), ConnectionErrors()
    for _ in range(1000):
        error = OSError(errno.EMFILE, "Too many open files")
        complaints(loop, {"message": "socket.accept() out of system resource", "exception": error})
    assert [record.message for record in caplog.records] == [
        "connections: Too many open files (socket.accept() out of system resource)"
    ]
    for _ in range(1000):
        complaints(loop, {"message": "a bug", "exception": ZeroDivisionError()})
    loop.close()
    assert len(caplog.records) == 2
    assert caplog.records[1].exc_info, "a mistake of ours keeps its traceback"
