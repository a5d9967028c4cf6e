"""`watch`, and `--live` of `train` and `resume`."""

import json
import urllib.request
from typing import Any

import pytest

from clearhead.cli.train import watch
from clearhead.live import state
from clearhead.live.state import Watched
from clearhead.web.page import Server
from tests.live.runs import begun, events
from tests.shell import Shell
from tests.training.tiny import write_recipe


def asked(server: Server[Watched]) -> Any:
    request = urllib.request.Request(f"{server.origin}/state", headers={"Authorization": f"Bearer {server.token}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


@pytest.fixture
def shown(monkeypatch) -> list[tuple[Server[Watched], Any]]:
    """The servers whose pages would open, with their first state."""
    found: list[tuple[Server[Watched], Any]] = []
    monkeypatch.setattr(state, "MOST_PAUSE", 0.0)  # The end waits for no page.
    monkeypatch.setattr(watch, "show", lambda server: found.append((server, asked(server))))
    return found


def test_train_and_resume_with_a_live_page(tmp_path, shown, shell: Shell):
    said = shell.done("train", write_recipe(tmp_path), "--out", "run", "--live", "--steps", 4)
    server, first = shown[0]
    assert (first["status"], first["now"]) == ("preparing", {})
    last: Any = server.shown.state()
    assert (last["status"], last["now"]["step"], len(last["evaluations"])) == ("finished", 4, 1)
    assert last["samples"]
    assert 0 < last["evaluations"][0]["loss"] < 20
    assert f"live page: {server.url}" in said.err
    assert server.ended.is_set()
    shell.done("resume", "run", "--live", "--steps", 5)
    server, first = shown[1]
    assert first["status"] == "finished"
    assert "still at work" in first["text"]
    assert server.shown.state()["events"][-1] == "resumed after step 4 with training.steps: 4 to 5"


def test_watch(tmp_path, shown, monkeypatch, shell: Shell):
    folder = begun(tmp_path / "run", events())
    monkeypatch.setattr(Server, "wait", lambda _: None)
    said = shell.done("watch", folder)
    assert shown[0][1]["now"]["step"] == 20
    assert said.out == f"{shown[0][0].url}\n"
    shell.done("watch", folder, "--no-browser")
    assert len(shown) == 1
    told = shell.refused("watch", ".")
    assert told.endswith("got one without a run; try one in it, such as clearhead watch run")
