"""Bodies of requests: what is read, what is refused before it is read, and how much is in memory together."""

import json
from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from clearhead.web import Bodies, limits, parsed

AS_JSON = {"Content-Type": "application/json; charset=utf-8"}


@pytest.fixture
def read() -> Bodies:
    return Bodies(100_000, 20, "question")


@pytest.fixture
def client(read: Bodies) -> TestClient:
    async def length(request: Request) -> Response:
        async with read.of(request) as body:
            return PlainTextResponse(f"{len(body)} {read.held}")

    return TestClient(Starlette(routes=[Route("/", length, methods=["POST"])]), base_url="http://127.0.0.1")


def chunked(n: int) -> Iterator[bytes]:
    """A body whose length is not said before."""
    for _ in range(n):
        yield bytes(1000)


def test_a_large_body_counts_while_it_is_used(client: TestClient, read: Bodies):
    assert client.post("/", content=bytes(50_000), headers=AS_JSON).text == "50000 0"
    assert client.post("/", content=bytes(100_000), headers=AS_JSON).text == f"100000 {100_000 - limits.SMALL}"
    assert client.post("/", content=chunked(100), headers=AS_JSON).text == f"100000 {100_000 - limits.SMALL}"
    assert read.held == 0


def test_too_large(client: TestClient, read: Bodies):
    for content in (bytes(100_001), chunked(101), chunked(10_000)):
        response = client.post("/", content=content, headers=AS_JSON)
        assert (response.status_code, response.text) == (413, "question: expected at most 100,000 bytes, got more")
    for said in ("100001", "9" * 400):
        assert client.post("/", content=b"{}", headers={**AS_JSON, "Content-Length": said}).status_code == 413
    assert read.held == 0


def test_no_room_beside_others(client: TestClient, read: Bodies, monkeypatch):
    monkeypatch.setattr(limits, "TOTAL", 40_000)
    read.held = 10_000
    response = client.post("/", content=bytes(100_000), headers=AS_JSON)
    assert (response.status_code, response.text) == (
        503,
        "too many large requests are being read; try again in a moment",
    )
    assert read.held == 10_000
    assert client.post("/", content=bytes(limits.SMALL), headers=AS_JSON).status_code == 200, "small ones always"


def test_other_types(client: TestClient):
    for kind in ("text/plain", "", "application/jsonx"):
        assert client.post("/", content=b"{}", headers={"Content-Type": kind}).status_code == 415


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 1_000_000,
        b"[" + b"[]," * 200_000 + b"1]",
        b"[" + b"{}," * 200_000 + b"1]",
        json.dumps(dict.fromkeys(map(str, range(200_000)))).encode(),
    ],
    ids=["deep", "lists", "objects", "fields"],
)
def test_many_parts_are_not_parsed(body: bytes, monkeypatch):
    monkeypatch.setattr(limits, "from_json", lambda *_, **__: pytest.fail("parsed"))
    with pytest.raises(ValueError, match="at most 100,000 lists, objects and fields"):
        parsed(body)


def test_brackets_in_a_text_are_text():
    text = '[{":\\"' * 100_000
    assert parsed(json.dumps({"text": text}).encode()) == {"text": text}


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"NaN", b"[" * 5000, b"1" * 5000, b'"\\ud800"'])
def test_what_is_no_json(body: bytes):
    with pytest.raises(ValueError, match="expected JSON; "):
        parsed(body)
