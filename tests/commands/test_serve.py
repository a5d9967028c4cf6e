"""`clearhead serve`, from the command line to an answer and to Ctrl-C."""

import http.client
import json
import os
import shlex
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from clearhead.cli import main
from clearhead.cli.use import serve
from clearhead.generation.settings import searching
from clearhead.web import listen
from tests.clients import post, served
from tests.serve.tiny import writer_model
from tests.shell import Shell
from tests.small_models import PAIRS, model_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return writer_model().save(tmp_path_factory.mktemp("models") / "writer")


CLEARHEAD = ("-m", "clearhead", "serve")


def test_a_process_is_served_by_its_example_and_ends_with_ctrl_c(folder: Path):
    with served(*CLEARHEAD, folder, "--port", 0, "--slots", 2) as (process, url):
        assert process.stderr is not None
        told = [process.stderr.readline() for _ in range(2)]
        words = shlex.split(told[1])
        assert (words[0], words[1]) == ("curl", f"{url}/v1/completions")
        status, found = post(url, "/v1/completions", json.loads(words[-1]))
        assert (status, json.loads(found)["usage"]["completion_tokens"]) == (200, 32)
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=60)
    assert process.returncode == 130
    assert rest == ("", "stopped by Ctrl-C\n")


def test_sigterm_frees_nothing_at_the_end(folder: Path):
    """What Python frees at its own end takes seconds on a busy machine. `sitecustomize` would tell of it."""
    freed = "import sys\nclass Freed:\n    def __del__(self, write=sys.stderr.write): write('freed')\nheld = Freed()\n"
    Path("sitecustomize.py").write_text(freed, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    with served(*CLEARHEAD, folder, "--port", 0, env=environment) as (process, url):
        for _ in range(3):  # Until it waits for signals.
            assert post(url, "/v1/completions", {"prompt": "one"})[0] == 200
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "stopped by SIGTERM" in said
    assert "freed" not in said


def run(monkeypatch: pytest.MonkeyPatch, visit: Any, *words: object) -> None:
    """Run the command; once it serves, visit it and press Ctrl-C."""

    def wait(_: object) -> None:
        visit()
        raise KeyboardInterrupt

    monkeypatch.setattr("clearhead.web.wait", wait)
    with pytest.raises(SystemExit) as end:
        main(["serve", *map(str, words)])
    assert end.value.code == 130


def test_a_translator(tmp_path, monkeypatch, capsys):
    model = model_of("demo")
    folder = model.save(tmp_path / "translator")
    found: list[tuple[int, bytes]] = []

    def visit() -> None:
        url, example = capsys.readouterr().out.strip(), {"text": PAIRS.source[:3]}
        found.append(post(url, "/translate", example))

    run(monkeypatch, visit, folder, "--port", 0)
    translations = model.translate(PAIRS.source[:3], searching(model.generation, {}))
    ((status, body),) = found
    assert (status, json.loads(body)) == (200, {"model": str(folder), "translations": translations})


def test_with_a_key_others_may_come(folder: Path, monkeypatch, capsys):
    monkeypatch.setenv(serve.KEY, "secret")
    found: list[int] = []

    def visit() -> None:
        said = capsys.readouterr()
        assert "secret" not in said.out + said.err
        assert f'-H "Authorization: Bearer ${serve.KEY}"' in said.err
        url = f"http://127.0.0.1:{urlsplit(said.out.strip()).port}"
        asked = {"prompt": "one", "max_tokens": 1}
        found.append(post(url, "/v1/completions", asked)[0])
        found.append(post(url, "/v1/completions", asked, Authorization="Bearer secret")[0])

    run(monkeypatch, visit, folder, "--port", 0, "--host", "0.0.0.0")
    assert found == [401, 200]


@pytest.mark.parametrize(
    "key", ["   ", "", " s3cret", "s3cret ", "a s3cret", "s3cret\n", "s3c\tret", "schl\u00fcssel", "s3cret\x7f"]
)
def test_a_key_that_nobody_can_send(folder: Path, monkeypatch, shell: Shell, key: str):
    monkeypatch.setenv(serve.KEY, key)
    monkeypatch.setattr("clearhead.web.listen", lambda *_, **__: pytest.fail("too late"))
    for host in ("127.0.0.1", "0.0.0.0"):
        said = shell.refused("serve", folder, "--host", host)
        assert f"{serve.KEY}: expected visible ASCII characters" in said
        assert not key.strip() or key.strip() not in said


SLOW_TURN = """
import time
from clearhead.cli import main
from clearhead.serve.engine import Engine
Engine.turn = lambda _: time.sleep(600)
main(["serve", {folder!r}, "--port", "0"])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are others there")
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_the_end_waits_for_no_computation(folder: Path, number: int):
    with served("-c", SLOW_TURN.format(folder=str(folder))) as (process, url):
        client = http.client.HTTPConnection("127.0.0.1", urlsplit(url).port, timeout=60)
        asked = json.dumps({"prompt": "one", "stream": True})
        client.request("POST", "/v1/completions", asked, {"Content-Type": "application/json"})
        client.getresponse()
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        client.close()
    assert process.returncode == 128 + number
    assert said.endswith(f"\nstopped by {'Ctrl-C' if number == signal.SIGINT else 'SIGTERM'}\n")
    assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_six_large_prompts_at_once_are_refused_and_leave_no_memory(folder: Path):
    def resident() -> float:
        return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * 4096 / 1e6

    def refused(_: int) -> float:
        began = time.monotonic()
        assert post(url, "/v1/completions", {"prompt": "one " * 975_000})[0] == 400
        return time.monotonic() - began

    with served(*CLEARHEAD, folder, "--port", 0) as (process, url):
        before = resident()
        with ThreadPoolExecutor(6) as pool:
            seconds = list(pool.map(refused, range(6)))
        after = resident()
        print(f"six prompts of 3.9 MB: 400 within {max(seconds):.2f} s; {before:.0f} MB before, {after:.0f} MB after")
        assert after < before + 200


def test_a_port_that_is_taken(folder: Path, shell: Shell):
    with listen() as taken:
        assert "which is taken" in shell.refused("serve", folder, "--port", taken.getsockname()[1])
    words = model_of("nano").save(Path("words"))
    assert "draft: expected token " in shell.refused("serve", folder, "--port", 0, "--draft", words)
