"""Servers that strangers reach for."""

import http.client
import itertools
import json
import random
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from clearhead.explorer.hosting.server import serving
from tests.reliability import Counted
from tests.serve.test_server import served, until
from tests.serve.tiny import endless_model

HOSTS = (
    *("evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", "evil-localhost"),
    *("0.0.0.0", "[::]", "192.168.0.1", "10.0.0.1", "169.254.169.254", "2130706433", "0x7f.1", "127.1", "localhost."),
    *(
        "",
        " ",
        "localhost@evil.example",
        "localhost, evil.example",
        "evil.example#localhost",
        "[::1",
        "xn--lcalhost-6ya",
    ),
)
ORIGINS = (
    *("http://evil.example", "https://localhost", "null", "file://", "http://127.0.0.1.evil.example", "chrome://x"),
    *("http://localhost@evil.example", "http://evil.example/?http://127.0.0.1", "HTTP://EVIL.EXAMPLE", "http://"),
    *("http://[::]", "http://0.0.0.0", "http://192.168.0.1", "ws://evil.example", "http://localhost.evil.example"),
    *("http://127.0.0.1", "http://127.0.0.1:1", "http://localhost:1", "javascript:alert(1)"),
)
PATHS = ("/", "/ask", "/static/boot.js", "/static/explorer.js", "/none", "/health")


class _Echo:
    """A session that says what it is asked."""

    def answer(self, question: Mapping[str, JsonValue]) -> bytes:
        return json.dumps(dict(question)).encode()


def _status(port: int, method: str, path: str, headers: Mapping[str, str], body: str = "") -> tuple[int, str]:
    """The status, and all header lines."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in ({"Content-Length": str(len(body))} | dict(headers)).items():
            connection.putheader(name, value)
        connection.endheaders(body.encode())
        response = connection.getresponse()
        response.read()
        return response.status, str(response.headers).lower()
    finally:
        connection.close()


def strangers(folder: Path) -> Counted:
    """40 foreign hosts and origins at every route, with the right token."""
    del folder
    tried = broken = 0
    with serving(_Echo()) as server:
        own = f"127.0.0.1:{server.port}"
        key = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
        headers = [{"Host": host} for host in HOSTS] + [{"Host": own, "Origin": origin} for origin in ORIGINS]
        for (method, path), given in itertools.product([("GET", path) for path in PATHS] + [("POST", "/ask")], headers):
            status, answered = _status(server.port, method, path, {**key, **given}, '{"ask": "x"}')
            broken += status not in (400, 403) or "access-control-" in answered
            broken += "content-security-policy" not in answered and status == 403
            tried += 1
        status, _ = _status(server.port, "POST", "/ask", {"Host": own, **key}, '{"ask": "x"}')
        broken += status != 200
    said = (
        f"{len(headers)} hosts and origins x {len(PATHS) + 1} routes: {tried} refusals, no header that lets others read"
    )
    return Counted(tried, broken, said)


def traversals(folder: Path) -> Counted:
    """500 paths that lead out of the page's folder."""
    del folder
    chance, broken, n = random.Random(39), 0, 500
    steps = (
        "..",
        "%2e%2e",
        "..%2f",
        "%2e%2e%2f",
        "..%5c",
        "..\\",
        "....//",
        "%252e%252e",
        ".%00.",
        "..;",
        "%c0%ae%c0%ae",
    )
    ends = (
        "etc/passwd",
        "pyproject.toml",
        "__init__.py",
        "session.py",
        ".built",
        "static/../session.py",
        "proc/self/environ",
    )
    with serving(_Echo()) as server:
        key = {"Authorization": f"Bearer {server.token}", "Host": f"127.0.0.1:{server.port}"}
        for _ in range(n):
            path = "/".join(["/static", *chance.choices(steps, k=chance.randrange(1, 9)), chance.choice(ends)])
            path = chance.choice([path, path[1:].replace("static", "static/"), path.replace("/static", "")])
            status, _ = _status(server.port, "GET", "/" + path.lstrip("/"), key)
            broken += status not in (400, 404)
    return Counted(n, broken, f"{n} paths out of the folder: none answered with a byte of a file")


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
    return Counted(n, broken, f"{n} streams left by their readers: each slot free after at most {slowest:.2f} s")


def tokens_of_a_start(folder: Path) -> Counted:
    """200 wrong tokens."""
    del folder
    broken, n = 0, 200
    with serving(_Echo()) as server:
        host = {"Host": f"127.0.0.1:{server.port}", "Content-Type": "application/json"}
        wrong = [server.token[:i] for i in range(len(server.token))] + [server.token + "x", server.token.swapcase()]
        wrong += [secrets.token_urlsafe() for _ in range(n - len(wrong))]
        for token in wrong[:n]:
            status, _ = _status(server.port, "POST", "/ask", {**host, "Authorization": f"Bearer {token}"}, "{}")
            broken += status != 401
    return Counted(n, broken, f"{n} wrong tokens, all beginnings of the right one among them: 401")


def everything_left(folder: Path) -> Counted:
    """Paths out of the folder, and streams whose reader hangs up."""
    parts = [traversals(folder), aborted_streams(folder)]
    return Counted(sum(p.tried for p in parts), sum(p.broken for p in parts), "; ".join(p.said for p in parts))
