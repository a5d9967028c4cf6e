"""Servers in processes of their own, and requests to them."""

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from tests import processes
from tests.conftest import ROOT


@contextmanager
def served(*words: object, **options: Any) -> Iterator[tuple[Any, str]]:
    """A process of Python that serves, and the address that it prints; gone afterwards."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": ROOT, "text": True}
    with processes.started([sys.executable, *map(str, words)], **{**pipes, **options}) as process:
        yield process, process.stdout.readline().strip()


def post(url: str, path: str, body: object, *, timeout: float = 60.0, **headers: str) -> tuple[int, bytes]:
    """The status and the body of the answer to a JSON value, or to bytes."""
    address = urlsplit(url)
    content = body if isinstance(body, bytes) else json.dumps(body)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=timeout)
    try:
        connection.request("POST", path, content, {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
