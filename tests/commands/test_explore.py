"""`clearhead explore`, from the command line to the browser and to Ctrl-C."""

import json
import signal
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from PIL import Image

from clearhead.cli.look import explore
from clearhead.errors import UserError
from clearhead.explorer.hosting.server import QuestionQueue
from clearhead.web import listen
from clearhead.web.page import Server
from tests.clients import post, served
from tests.shell import Folders, Said, Shell
from tests.small_models import PAIRS

Visit = Callable[[Server[QuestionQueue]], object]


@pytest.fixture
def folder(folders: Folders) -> Path:
    return folders["translator"]


@pytest.fixture(autouse=True)
def _built(monkeypatch) -> None:
    """The page as built, whether or not it is; no browser."""
    monkeypatch.setattr("clearhead.explorer.static_files.check_built", lambda: None)
    monkeypatch.setattr(webbrowser, "open", lambda _: pytest.fail("no browser"))


def ask(url: str, question: object) -> tuple[int, bytes]:
    """Ask as a script does, with the token of the printed address."""
    token = urlsplit(url).query.removeprefix("token=")
    return post(url, "/ask", question, timeout=30, Authorization=f"Bearer {token}")


def about(url: str) -> dict[str, Any]:
    """What the session says of its model: the metadata of a safetensors file."""
    status, body = ask(url, {"ask": "about"})
    assert status == 200, body
    n = int.from_bytes(body[:8], "little")
    return json.loads(json.loads(body[8 : 8 + n])["__metadata__"]["reply"])


@pytest.fixture
def visited(shell: Shell, monkeypatch) -> Callable[..., Said]:
    """Runs the command; once it serves, visits it and presses Ctrl-C."""

    def run(visit: Visit, *words: object) -> Said:
        def wait(server: Server[QuestionQueue]) -> None:
            visit(server)
            raise KeyboardInterrupt

        monkeypatch.setattr(Server, "wait", wait)
        return shell("explore", *words)

    return run


def test_a_model_is_served_until_ctrl_c(folder: Path, visited: Callable[..., Said]):
    seen: list[dict[str, Any]] = []
    words = (folder, PAIRS.source[0], "--target", PAIRS.target[0], "--no-browser")
    said = visited(lambda server: seen.append({"url": server.url, **about(server.url)}), *words)
    assert said.out == f"{seen[0]['url']}\n", "standard output is the address and nothing else"
    assert (said.code, said.err) == (130, f"Exploring {folder}. Ctrl-C ends it.\nstopped by Ctrl-C\n")
    assert (seen[0]["name"], seen[0]["kind"]) == (str(folder), "encoder-decoder")
    assert (seen[0]["start"]["text"], seen[0]["start"]["target"]) == (PAIRS.source[0], PAIRS.target[0])
    with pytest.raises(ConnectionRefusedError):
        ask(seen[0]["url"], {"ask": "about"})


def test_the_folder_one_is_in_has_a_name(folder: Path, monkeypatch, visited: Callable[..., Said]):
    monkeypatch.chdir(folder)
    names: list[str] = []
    visited(lambda server: names.append(about(server.url)["name"]), ".", "--no-browser")
    assert names == [str(folder.resolve())]


def test_a_model_that_reads_images_begins_with_one(folders: Folders, visited: Callable[..., Said]):
    Image.new("RGB", (8, 8), "teal").save("picture.png")
    runs: list[tuple[int, bytes]] = []

    def visit(server: Server[QuestionQueue]) -> None:
        said = about(server.url)
        assert said["kind"] == "image"
        runs.append(ask(server.url, {"ask": "run", "run": said["start"]}))

    visited(visit, folders["vision"], "picture.png", "--no-browser")
    visited(visit, folders["vision"], "--no-browser")
    assert [status for status, _ in runs] == [200, 200]
    assert runs[0] != runs[1], "the picture that was given"
    error = "a text: expected an image file, as this model reads images, found none; try another path"
    assert visited(visit, folders["vision"], "a text", "--no-browser").error == error


def test_a_port_of_ones_choice(folder: Path, visited: Callable[..., Said], monkeypatch):
    with listen() as held, monkeypatch.context() as patch:
        port = held.getsockname()[1]
        patch.setattr("clearhead.api.load", lambda *_, **__: pytest.fail("too late"))
        error = f"error: port: expected a free one, got {port}, which is taken; try another, or leave it out\n"
        assert visited(lambda _: None, folder, "--port", port) == (2, "", error)
    ports: list[int] = []
    visited(lambda server: ports.append(server.port), folder, "--port", port, "--no-browser")
    assert ports == [port]


def test_a_page_that_was_not_built_is_told_first(shell: Shell, monkeypatch):
    assert shell.refused("explore", "./nowhere").startswith("./nowhere: expected a folder with a model, found nothing")

    def missing() -> None:
        raise UserError("explorer.js: expected the built page; build it")

    monkeypatch.setattr("clearhead.explorer.static_files.check_built", missing)
    assert shell.refused("explore", "./nowhere") == "explorer.js: expected the built page; build it"


@pytest.mark.parametrize("works", [True, False])
def test_the_browser_opens_the_address(folder: Path, monkeypatch, visited: Callable[..., Said], works: bool):
    monkeypatch.setenv("DISPLAY", ":0")
    opened: list[str] = []
    urls: list[str] = []
    asked = threading.Event()

    def show(url: str) -> None:
        shown(url)
        asked.set()

    shown = explore.show
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or works)
    monkeypatch.setattr(explore, "show", show)
    said = visited(lambda server: urls.append(server.url) or asked.wait(10), folder)
    assert opened == urls
    assert ("Open the address above in a browser" in said.err) == (not works)


SERVES = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from clearhead.cli import main
from clearhead.explorer import static_files
from clearhead.explorer.session import Session
static_files.check_built = lambda: None
Session.answer = lambda *_: time.sleep(600)
main(["explore", {folder!r}, "--no-browser"])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are others there")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_end_waits_neither_for_half_a_question_nor_for_an_answer(folder: Path, number: int):
    with served("-c", SERVES.format(folder=str(folder))) as (process, url):
        address = urlsplit(url)
        head = (
            f"POST /ask HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {address.query.removeprefix('token=')}\r\n"
            "Content-Type: application/json\r\nContent-Length: 12\r\n\r\n"
        )
        with ExitStack() as clients:
            for body in ("", "{", '{"ask": "x"}', "whatever"):
                client = socket.create_connection(("127.0.0.1", address.port or 0), timeout=60)
                clients.enter_context(client).sendall((head + body).encode())
            time.sleep(0.5)
            process.send_signal(number)
            _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert said.endswith(f"\nstopped by {'Ctrl-C' if number == signal.SIGINT else 'SIGTERM'}\n")
    assert "Traceback" not in said
