"""The hub, as a server on this machine that takes files, and `clearhead push` in a process of its own."""

import base64
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import clearhead
from clearhead.checkpoints.weights.hub import upload
from clearhead.cli import main
from clearhead.errors import UserError
from tests import processes
from tests.checkpoints.weights.server import Server, serving
from tests.small_models import model_of


class Hub(Server):
    """As much of the hub's protocol as the library speaks to upload small files."""

    repositories: ClassVar[dict[str, dict[str, bytes]]] = {}
    private: ClassVar[dict[str, bool]] = {}

    def do_GET(self) -> None:
        name = self.path.removeprefix("/api/models/").partition("/revision")[0].partition("?")[0]
        self.answer(200, {"id": name, "sha": "a" * 40, "siblings": []})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = self.path.partition("?")[0]
        if "Bearer hf_good" not in self.headers.get("Authorization", ""):
            self.answer(401, {"error": "who are you"})
        elif path.startswith("/api/models/others/"):
            self.answer(403, {"error": "not yours"})
        elif path == "/api/repos/create":
            self.create(json.loads(body))
        elif path.endswith("/preupload/main"):
            paths = [file["path"] for file in json.loads(body)["files"]]
            files = [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in paths]
            self.answer(200, {"files": files})
        elif path.endswith("/commit/main"):
            self.commit(path.removeprefix("/api/models/").removesuffix("/commit/main"), body)
        else:
            self.answer(200, {"errors": [], "warnings": []})

    def create(self, asked: dict[str, Any]) -> None:
        name = f"{asked.get('organization', 'me')}/{asked['name']}"
        if asked.get("organization") == "others":
            return self.answer(403, {"error": "not yours"})
        there = name in self.repositories
        self.repositories.setdefault(name, {})
        self.private.setdefault(name, asked.get("private") or asked.get("visibility") == "private")
        return self.answer(409 if there else 200, {"url": f"http://{self.headers['Host']}/{name}", "name": name})

    def commit(self, name: str, body: bytes) -> None:
        for line in body.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                self.repositories[name][entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
        url = f"http://{self.headers['Host']}/{name}/commit/{'a' * 40}"
        self.answer(200, {"commitUrl": url, "commitOid": "a" * 40, "success": True})


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving(Hub) as address:
        yield address


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_of("gpt2").save(tmp_path_factory.mktemp("saved") / "model")


def push(model: Path, repository: str, *options: str, home: Path, **settings: str) -> tuple[int, str, str]:
    """Exit code and both streams."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    environment |= {"HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", **settings}
    arguments = [sys.executable, "-m", "clearhead", "push", str(model), repository, *options]
    done = processes.run(arguments, env=environment, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr.splitlines()[-1]


def speak_to(monkeypatch: pytest.MonkeyPatch, endpoint: str, token: str) -> None:
    """Let this process speak to that hub."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)
    monkeypatch.setenv("HF_TOKEN", token)


def test_a_model_is_uploaded_and_opens_again(
    server: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, error = push(model, "me/small", "--private", home=tmp_path, HF_ENDPOINT=server, HF_TOKEN="hf_good")
    assert (code, out) == (0, f"{server}/me/small\n"), error
    speak_to(monkeypatch, server, "hf_good")
    assert upload(model, "me/small", private=True) == f"{server}/me/small", "the repository is there now"
    files = Hub.repositories["me/small"]
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= files.keys()
    assert "MANIFEST.json" not in files
    assert Hub.private["me/small"]
    folder = tmp_path / "back"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    assert clearhead.load(folder).tokenizer.to_files() == clearhead.load(model).tokenizer.to_files()


def test_what_goes_wrong_is_one_line(
    server: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
    token = "hf_good"
    lines = {
        ("me/x", server, ""): "me/x: expected a token that may write, got none",
        ("me/x", server, "hf_bad"): "me/x: expected a token that may write, got none that the hub knows",
        ("others/x", server, token): "others/x: expected a token that may write there, got one that may not",
        ("a b/c", server, token): "a b/c: expected a name on the hub, such as owner/name",
        ("me/x", "http://127.0.0.1:9", token): "me/x: expected to reach the hub, got ",
    }
    for (name, endpoint, secret), line in lines.items():
        speak_to(monkeypatch, endpoint, secret)
        with pytest.raises(UserError, match=re.escape(line)):
            upload(model, name, private=False)
    speak_to(monkeypatch, server, "hf_bad")
    with pytest.raises(SystemExit) as end:
        main(["push", str(model), "me/x"])
    said = capsys.readouterr()
    assert (end.value.code, said.out) == (2, "")
    expected = "error: me/x: expected a token that may write, got none that the hub knows;"
    assert said.err.splitlines()[-1].startswith(expected)
