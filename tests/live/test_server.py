"""The page, for the holder of its token alone."""

import pytest
from starlette.testclient import TestClient

from clearhead.live.server import FILES, application, serving
from clearhead.live.state import Watched
from clearhead.web.page import HEADERS
from tests.live.runs import begun, events

ADDRESS = "http://127.0.0.1:8000"


@pytest.fixture
def client(tmp_path) -> TestClient:
    watched = Watched(begun(tmp_path / "run", events()))
    return TestClient(application(watched, token="right", cookie="c"), base_url=ADDRESS)


@pytest.mark.parametrize("path", ["/", "/state", "/static/live.js", "/none"])
def test_a_stranger_gets_nothing(client: TestClient, path: str):
    assert client.get(path).status_code == 401
    assert client.get(path, headers={"Host": "evil.example"}).status_code == 403
    assert "clearhead watch" in client.get(path).json()["error"]


def test_the_page_and_its_state(client: TestClient):
    assert "<title>" in client.get("/?token=right").text
    assert str(client.get("/").url) == f"{ADDRESS}/"
    for name, kind in FILES.items():
        answer = client.get(f"/static/{name}")
        assert answer.headers["content-type"].startswith(kind)
        assert all(answer.headers[key] == value for key, value in HEADERS.items())
    state = client.get("/state").json()
    assert state["now"]["step"] == 20
    assert client.get("/state", params={"seen": state["version"]}).status_code == 204
    assert client.get("/static/log.py").status_code == 404
    assert client.post("/state").status_code == 405


def test_serves_until_the_end_of_the_block(tmp_path):
    with serving(begun(tmp_path / "run")) as server:
        assert server.url.startswith(f"http://127.0.0.1:{server.port}/?token=")
        assert not server.ended.is_set()
    assert server.ended.wait(5)
