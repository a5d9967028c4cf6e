"""The server, by Starlette's client, and over real sockets."""

import http.client
import json
import logging
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from pydantic import JsonValue
from starlette.testclient import TestClient

from clearhead.errors import OutOfMemory, UserError
from clearhead.explorer.hosting import server as module
from clearhead.explorer.hosting.server import HEADERS, MAX_WAITING, QuestionQueue, application, serving
from clearhead.web import listen
from clearhead.web.page import Server, open_browser

TOKEN = "right-token"
ADDRESS = "http://127.0.0.1:8000"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
PATHS = ("/", "/static/boot.js", "/static/none", "/ask", "/none", f"/?token={TOKEN}")


class Fake:
    """A session with one answer, and the errors that a real one can raise."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, JsonValue]] = []
        self.going = threading.Event()
        self.going.set()
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()

    def answer(self, question: Mapping[str, JsonValue]) -> bytes:
        with self.lock:
            self.asked.append(question)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            assert self.going.wait(20)
            match question.get("ask"):
                case "echo":
                    return json.dumps(question).encode()
                case "bug":
                    raise ZeroDivisionError("a bug\nof two lines")
                case "memory":
                    raise OutOfMemory("out of memory; try a shorter text")
                case "allocation":
                    raise MemoryError
                case other:
                    raise UserError(f"ask: expected echo, got {other!r}")
        finally:
            with self.lock:
                self.at_once -= 1


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture(autouse=True)
def _page(monkeypatch) -> None:
    """As built, whether or not it is."""
    monkeypatch.setattr(module, "static_file", lambda name: f"file {name}".encode())


@pytest.fixture
def client(fake: Fake) -> TestClient:
    """A browser that has not yet opened the address."""
    app = application(QuestionQueue(fake), token=TOKEN, cookie="c")
    return TestClient(app, base_url=ADDRESS, follow_redirects=False)


@pytest.fixture
def page(client: TestClient) -> TestClient:
    """A browser that has."""
    assert client.get("/", params={"token": TOKEN}).status_code == 303
    return client


def sealed(headers: Mapping[str, str]) -> None:
    lower = {name.lower(): value for name, value in headers.items()}
    assert all(lower[name.lower()] == value for name, value in HEADERS.items())
    assert not any(name.startswith("access-control-") for name in lower)


# --- who may come in ---------------------------------------------------------------------------------------------


def test_the_token_goes_from_the_address_into_a_cookie(client: TestClient):
    first = client.get("/", params={"token": TOKEN})
    assert (first.status_code, first.headers["location"]) == (303, "/"), "without a fragment, the browser keeps its own"
    cookie = first.headers["set-cookie"].lower()
    assert cookie == f"c={TOKEN}; httponly; path=/; samesite=lax"
    assert first.content == b""
    assert TOKEN not in client.get("/").text
    for path in ("/", "/static/boot.js", "/static/explorer.css"):
        assert client.get(path).status_code == 200
    assert client.post("/ask", json={"ask": "echo"}).status_code == 200


FOREIGN = [
    *(("Host", host) for host in (
        "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8000", "127.0.0.1@evil", "0.0.0.0:8000",
        "127.0.0.2:8000", "[::]:8000", "::1", "[::1]evil:8000", "127.1", "2130706433", "", "127.0.0.1:8000:8000",
        "127.0.0.1:8000, evil.example", "127.0.0.1:800000", "localhost.", "evil.example#127.0.0.1",
        "http://127.0.0.1:8000", "127.0.0.1 ")),
    *(("Origin", origin) for origin in (
        "null", "http://evil.example", "http://127.0.0.1", "http://127.0.0.1:8001", "file://", "",
        "http://localhost:8000", "https://127.0.0.1:8000", "http://127.0.0.1:8000.evil.example",
        "http://127.0.0.1:8000@evil.example", "http://127.0.0.1:8000/", "*", "http://127.0.0.1:80000",
        "http://127.0.0.1:8000 http://evil.example")),
]  # fmt: skip
WRONG: dict[str, dict[str, str]] = {
    "none": {},
    "bearer": {"Authorization": "Bearer wrong"},
    "basic": {"Authorization": f"Basic {TOKEN}"},
    "bare": {"Authorization": TOKEN},
    "longer": {"Authorization": f"Bearer {TOKEN}x"},
    "shorter": {"Authorization": f"Bearer {TOKEN[:-1]}"},
    "empty": {"Authorization": "Bearer "},
    "cookie": {"Cookie": "c=wrong"},
    "another's cookie": {"Cookie": f"d={TOKEN}"},
    "no ascii": {"Authorization": "Bearer \xe9"},
}


@pytest.mark.parametrize("headers", WRONG.values(), ids=WRONG)
def test_no_token_no_entry(client: TestClient, fake: Fake, headers: dict[str, str]):
    sent = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    for path in PATHS[:-1]:
        for method in ("GET", "POST", "HEAD", "OPTIONS", "PUT"):
            refuses(client, 401, method, path, sent)
    for address in ("/?token=wrong", "/?token=", "/?token=%C3%A9", f"/static/boot.js?token={TOKEN}"):
        refuses(client, 401, "GET", address)
    refuses(client, 401, "POST", f"/?token={TOKEN}")
    assert fake.asked == []


def refuses(client: TestClient, status: int, method: str, path: str, headers: Any = None) -> None:
    response = client.request(method, path, headers=headers, json={"ask": "echo"})
    assert response.status_code == status, (method, path)
    sealed(response.headers)


@pytest.mark.parametrize("header", FOREIGN)
def test_a_foreign_host_or_origin_is_refused_whatever_it_holds(page: TestClient, fake: Fake, header: tuple[str, str]):
    for i, path in enumerate(PATHS):
        refuses(page, 403, ("GET", "POST", "OPTIONS")[i % 3], path, [header, *BEARER.items()])
    refuses(page, 403, "GET", "/", [(header[0], "127.0.0.1:8000"), header, *BEARER.items()])
    assert fake.asked == []


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "LOCALHOST", "[::1]:8000", "127.0.0.1:9"])
def test_this_machine_by_any_name_and_forwarded_port(client: TestClient, host: str):
    headers = {**BEARER, "Host": host, "Origin": f"http://{host}"}
    assert client.post("/ask", json={"ask": "echo"}, headers=headers).status_code == 200


# --- the page and its files --------------------------------------------------------------------------------------


def test_the_page_has_nothing_inline(page: TestClient):
    response = page.get("/")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert 'lang="en"' in response.text
    assert "<style" not in response.text
    assert " style=" not in response.text
    assert response.text.count("<script") == response.text.count(
        '<script type="module" src="/static/boot.js"></script>'
    )
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    sealed(response.headers)
    for name, kind in (("boot.js", "text/javascript"), ("explorer.css", "text/css")):
        response = page.get(f"/static/{name}")
        assert (response.headers["content-type"], response.text) == (f"{kind}; charset=utf-8", f"file {name}")
        sealed(response.headers)


def test_a_page_that_was_not_built_is_told(page: TestClient, monkeypatch):
    def missing(name: str) -> bytes:
        raise UserError(f"{name}: expected the built page; build it")

    monkeypatch.setattr(module, "static_file", missing)
    response = page.get("/static/boot.js")
    assert (response.status_code, response.json()) == (500, {"error": "boot.js: expected the built page; build it"})
    sealed(response.headers)


# --- questions ---------------------------------------------------------------------------------------------------


def test_an_answer_comes_back_as_it_is(page: TestClient, fake: Fake):
    question = {"ask": "echo", "text": "a – \U0001f600", "list": [1, 2.5, None]}
    response = page.post("/ask", json=question)
    assert response.headers["content-type"] == "application/octet-stream"
    assert json.loads(response.content) == question == fake.asked[0]
    sealed(response.headers)


def test_what_goes_wrong_is_one_line(page: TestClient, caplog):
    expected = {
        "bogus": (400, "ask: expected echo, got 'bogus'"),
        "memory": (503, "out of memory; try a shorter text"),
        "allocation": (503, "out of memory; try a shorter text"),
        "bug": (500, "internal error; the terminal that runs clearhead shows where"),
    }
    for ask, (status, error) in expected.items():
        with caplog.at_level(logging.ERROR, "clearhead"):
            response = page.post("/ask", json={"ask": ask})
        assert (response.status_code, response.json()) == (status, {"error": error})
        sealed(response.headers)
    assert [record.exc_info is not None for record in caplog.records] == [True], "the bug, with its traceback"
    for body in (b"[]", b"null", b'{"ask": NaN}', b"\xff\xfe", b'{"a":' * 100_000, b'{"ask": "\\ud800"}'):
        response = page.post("/ask", content=body, headers={"Content-Type": "application/json"})
        assert (response.status_code, response.json()["error"].count("\n")) == (400, 0)
    assert page.post("/ask", json={"ask": "echo"}).status_code == 200


def test_wrong_methods_and_places(page: TestClient):
    for method, path in (("GET", "/ask"), ("POST", "/"), ("DELETE", "/static/boot.js"), ("OPTIONS", "/ask")):
        response = page.request(method, path)
        assert response.status_code == 405
        assert response.headers["allow"]
        sealed(response.headers)
    for path in ("/none", "/ask/", "/static", "/static/", "/docs", "/openapi.json"):
        response = page.get(path)
        assert response.status_code == 404, path
        assert response.json() == {"error": "Not Found"}
        sealed(response.headers)


# --- over real sockets -------------------------------------------------------------------------------------------


@pytest.fixture
def server(fake: Fake) -> Iterator[Server[QuestionQueue]]:
    with serving(fake) as running:
        yield running
        fake.going.set()


def ask(server: Server[QuestionQueue], question: object, *, timeout: float = 20) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    try:
        connection.request("POST", "/ask", json.dumps(question), headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def send(server: Server[QuestionQueue], request: bytes, *, within: float = 5) -> bytes:
    """What comes back for these bytes; nothing where the server hangs up, or waits for more."""
    with (
        suppress(ConnectionError, TimeoutError),
        socket.create_connection(("127.0.0.1", server.port), timeout=within) as connection,
    ):
        connection.sendall(request)
        return connection.recv(1 << 16)
    return b""


def eventually(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_printed_address_opens_the_page(server: Server[QuestionQueue]):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    connection.request("GET", server.url.removeprefix(server.origin))
    first = connection.getresponse()
    first.read()
    assert first.status == 303
    cookie = (first.getheader("set-cookie") or "").partition(";")[0]
    assert cookie == f"clearhead-{server.port}={server.token}", "two explorers' cookies do not meet"
    connection.request("GET", "/", headers={"Cookie": cookie})
    response = connection.getresponse()
    assert b'<div id="app">' in response.read()
    sealed(dict(response.getheaders()))
    connection.close()
    assert ask(server, {"ask": "echo"}) == (200, b'{"ask": "echo"}')


def test_a_hundred_at_once_are_all_answered_a_few_at_a_time(server: Server[QuestionQueue], fake: Fake):
    fake.going.clear()
    with ThreadPoolExecutor(100) as pool:
        waiting = [pool.submit(ask, server, {"ask": "echo", "n": n}) for n in range(100)]
        eventually(lambda: fake.at_once == module.AT_ONCE)
        assert send(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 401"), "others come in"
        fake.going.set()
        for n, one in enumerate(waiting):
            assert one.result() == (200, json.dumps({"ask": "echo", "n": n}).encode())
    assert fake.most_at_once <= module.AT_ONCE


def test_more_than_can_wait_are_told(fake: Fake, monkeypatch):
    assert MAX_WAITING >= 100
    monkeypatch.setattr(module, "MAX_WAITING", 8)
    fake.going.clear()
    with serving(fake) as server, ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(ask, server, {"ask": "echo"}) for _ in range(8)]
        eventually(lambda: fake.at_once == module.AT_ONCE)
        eventually(lambda: refuses_one_more(server))
        fake.going.set()
        assert {one.result()[0] for one in waiting} <= {200, 503}
        assert ask(server, {"ask": "echo"})[0] == 200


def refuses_one_more(server: Server[QuestionQueue]) -> bool:
    with suppress(TimeoutError):
        return ask(server, {"ask": "echo"}, timeout=0.2)[0] == 503
    return False


def test_who_hangs_up_before_its_turn_is_not_answered(server: Server[QuestionQueue], fake: Fake):
    fake.going.clear()
    with ThreadPoolExecutor(8) as pool:
        first = [pool.submit(ask, server, {"ask": "echo"}) for _ in range(module.AT_ONCE)]
        eventually(lambda: fake.at_once == module.AT_ONCE)
        for _ in range(20):
            with pytest.raises(TimeoutError):
                ask(server, {"ask": "echo", "gone": True}, timeout=0.02)
        fake.going.set()
        assert all(one.result()[0] == 200 for one in first)
        assert ask(server, {"ask": "echo"})[0] == 200
    assert not any("gone" in question for question in fake.asked)


def test_a_question_that_does_not_arrive_is_given_up(server: Server[QuestionQueue]):
    server.shown.bodies.seconds = 0.05
    head = f"POST /ask HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 408")


STEPS = ("..", "%2e%2e", "....", "%252e%252e", "..%5c", "%c0%ae%c0%ae", ".", "", "~", "C:", "%00", "boot.js", "x" * 300)
ENDS = ("etc/passwd", "server.py", "boot.js%00", "static_files.py", "BOOT.JS", "boot.js.", "__init__.py", "..", "")


def test_what_is_no_file_of_the_page_is_not_found(server: Server[QuestionQueue], monkeypatch):
    monkeypatch.setattr(module, "static_file", lambda name: pytest.fail(f"asked for {name}"))
    rng = random.Random(0)
    for _ in range(500):
        parts = [*(rng.choice(STEPS) for _ in range(rng.randint(0, 5))), rng.choice(ENDS)]
        path = "/static/" + rng.choice(("/", "%2f", "\\", "%5c")).join(parts)
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n\r\n"
        assert send(server, request.encode()).startswith(b"HTTP/1.1 404"), path


def test_the_end_waits_for_the_answer_under_way_and_drops_the_rest(fake: Fake):
    fake.going.clear()
    with ThreadPoolExecutor(16) as pool:
        with serving(fake) as server:
            waiting = [pool.submit(ask, server, {"ask": "echo"}) for _ in range(16)]
            eventually(lambda: fake.at_once == module.AT_ONCE)
            time.sleep(0.2)
            threading.Timer(0.2, fake.going.set).start()
        assert server.ended.is_set()
        server.wait()
        assert len(fake.asked) == module.AT_ONCE
        assert sorted(one.result()[0] for one in waiting) == [200] * module.AT_ONCE + [503] * (16 - module.AT_ONCE)
    with pytest.raises(ConnectionRefusedError):
        ask(server, {"ask": "echo"})


# --- fuzz --------------------------------------------------------------------------------------------------------


def fuzzed(rng: random.Random, token: str) -> bytes:
    """A request with something wrong in it, often more than one thing."""

    def junk() -> str:
        return "".join(chr(rng.choice((rng.randrange(32, 127), rng.randrange(256)))) for _ in range(rng.randrange(40)))

    odd = ("/static/..", "*", "", "//", "/%00", "http://evil.example/", "/\xe9", "/" + junk(), "/" + "a" * 70_000)
    path = rng.choice((*PATHS[:-1], *odd, *["/ask"] * 12))
    headers = [
        *rng.choices((f"Host: {rng.choice(('localhost', 'evil.example', junk()))}", ""), (9, 1)),
        *rng.choices(("", f"Authorization: Bearer {token}", f"Cookie: {junk()}"), (1, 6, 1)),
        *rng.choices(("", "Content-Type: application/json", f"Content-Type: {junk()}"), (1, 6, 1)),
        *[f"{junk()}: {junk()}" for _ in range(rng.randrange(3))] * rng.choice((0, 0, 1)),
    ]
    bodies = (*['{"ask": "bogus"}'] * 3, junk(), '{"ask":' + "[" * rng.randrange(3000), junk() * 100)
    body = rng.choice(bodies).encode("latin-1")
    length = f"Content-Length: {len(body)}"
    framing = rng.choice((length, length, length, f"Content-Length: {junk()}", "Transfer-Encoding: chunked", ""))
    version = rng.choices(("HTTP/1.1", "HTTP/1.0", "HTTP/9", junk()), (9, 1, 1, 1))[0]
    methods = ("HEAD", "PUT", "OPTIONS", "TRACE", "CONNECT", "PRI", "get", "", "\x00", "P" * 9000, junk())
    method = rng.choice((*["GET"] * 4, *["POST"] * 12, *methods))
    lines = [f"{method} {path} {version}", *[line for line in (*headers, framing) if line], "", ""]
    return rng.choice(("\r\n", "\r\n", "\r\n", "\n")).join(lines).encode("latin-1") + body + b"\r\n\r\n"


@pytest.mark.parametrize("n", [600, pytest.param(10_000, marks=pytest.mark.slow)])
def test_fuzzed_requests_are_refused_and_the_server_lives(server: Server[QuestionQueue], fake: Fake, n: int):
    rng = random.Random(1)
    statuses: dict[bytes, int] = {}
    for _ in range(n):
        request = fuzzed(rng, server.token)
        reply = send(server, request, within=1)
        status = reply[9:12]
        statuses[status] = statuses.get(status, 0) + 1
        fine = re.match(rb"(GET|HEAD) /(static/boot\.js)?[ ?#]", request)
        assert status[:1] in (b"4", b"") or (fine and status == b"200"), (request[:300], reply[:300])
    assert {b"400", b"401", b"403", b"404", b"405", b"415"} <= statuses.keys(), statuses
    assert statuses.get(b"", 0) < n / 20, "hardly any waits for more"
    assert any(question == {"ask": "bogus"} for question in fake.asked), "some come as far as the session"
    assert ask(server, {"ask": "echo"})[0] == 200


# --- ports and browsers ------------------------------------------------------------------------------------------


def test_a_port_that_cannot_be_had():
    with listen() as held:
        port = held.getsockname()[1]
        with pytest.raises(UserError, match=rf"port: expected a free one, got {port}, which is taken; try another"):
            listen(port)
    with listen(port) as again:
        assert again.getsockname() == ("127.0.0.1", port), "only this machine gets here"
    for port in (-1, 65_536):
        with pytest.raises(UserError, match=rf"port: expected 0 to 65535, got {port}; leave it out"):
            listen(port)


def test_a_browser_opens_only_where_it_can(monkeypatch):
    import sys
    import webbrowser

    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: asked.append(url) or True)
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    assert not open_browser(ADDRESS)
    assert asked == [], "a browser in the terminal would take it over"
    monkeypatch.setenv("DISPLAY", ":0")
    assert open_browser(ADDRESS)
    assert asked == [ADDRESS]

    def broken(url: str) -> bool:
        raise webbrowser.Error("no browser")

    monkeypatch.setattr(webbrowser, "open", broken)
    assert not open_browser(ADDRESS)
