"""Streams that nobody reads."""

import http.client
import json
import time
from pathlib import Path

from tests.reliability import Counted
from tests.serve.test_server import served, until
from tests.serve.tiny import endless_model


def aborted_streams(folder: Path) -> Counted:
    """100 streams of text whose reader hangs up."""
    del folder
    asked = json.dumps({"prompt": "one", "max_tokens": 9000, "stream": True, "temperature": 1.0})
    slowest, broken, n = 0.0, 0, 100
    with served(endless_model()) as (port, worker):
        for _ in range(n):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("POST", "/v1/completions", asked, {"Content-Type": "application/json"})
            response = connection.getresponse()
            broken += not response.readline().startswith(b"data: {")
            began = time.perf_counter()
            response.close()
            connection.close()
            until(lambda: not worker.under_way)
            slowest = max(slowest, time.perf_counter() - began)
    return Counted(
        n,
        broken,
        f"{n} readers closed their streams, and each time the server stopped writing after at most {slowest:.2f} s",
    )
