"""The hub, as a server on this machine, and clients in processes of their own: names in, folders or one line out."""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from clearhead.checkpoints.weights import hub
from clearhead.errors import UserError
from tests import processes
from tests.checkpoints.weights.server import Server, serving

COMMITS = {"main": "a" * 40, "v1": "b" * 40}
SHARD = "model-00001-of-00001.safetensors"


def table(*shards: str) -> bytes:
    return json.dumps({"weight_map": {str(i): shard for i, shard in enumerate(shards)}}).encode()


MODULES = json.dumps(
    [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
).encode()
WITHIN = MODULES.replace(b'"path": ""', b'"path": "0_Transformer"').replace(b"1_Pooling", b"any/Dense")
COMMON = {"config.json": b"{}", "README.md": b"hello", "tokenizer.json": b"[]"}
JUNK = dict.fromkeys(
    ["modeling_x.py", "run.sh", "rust_model.ot", "tf_model.h5", "onnx/model.onnx", "onnx/config.json", "x.gguf"],
    b"junk",
) | {"consolidated.safetensors": b"junk", "training_args.bin": b"junk", "sub/model.safetensors": b"junk"}
REPOSITORIES: dict[str, dict[str, bytes]] = {
    "org/whole": {
        **COMMON,
        **JUNK,
        "model.safetensors": b"weights",
        "pytorch_model.bin": b"pickle",
        "1_Pooling/config.json": b"{ }",
        "modules.json": MODULES,
        "source.spm": b"spm",
        "chat_template.jinja": b"{{ x }}",
    },
    "sharded": {
        **COMMON,
        **JUNK,
        SHARD: b"1",
        "unnamed.safetensors": b"2",
        "model.safetensors.index.json": table(SHARD),
    },
    "org/within": {
        **{f"0_Transformer/{name}": content for name, content in COMMON.items()},
        "modules.json": WITHIN,
        "0_Transformer/model.safetensors": b"weights",
        "0_Transformer/onnx/model.onnx": b"junk",
        "any/Dense/config.json": b"{}",
        "any/Dense/pytorch_model.bin": b"pickle",
        "other/config.json": b"junk",
    },
    "org/old": {**COMMON, **JUNK, "pytorch_model.bin": b"pickle"},
    "org/old-sharded": {**COMMON, "a.bin": b"1", "b.bin": b"2", "pytorch_model.bin.index.json": table("a.bin")},
    "org/escape": {**COMMON, "model.safetensors.index.json": table("../../x.safetensors")},
    "org/gated": {**COMMON, "model.safetensors": b"weights"},
    "org/locked": {},
    "org/busy": {},
}


class Hub(Server):
    """As much of the hub's protocol as the library speaks to download: a commit, its files, each file."""

    fetched: ClassVar[set[str]] = set()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if match := re.fullmatch(r"/api/models/(.+?)(?:/(revision|tree)/([^/]+))?", path):
            self.describe(match[1], match[3] or "main", files_only=match[2] == "tree")
        elif match := re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", path):
            self.file(match[1], match[2], match[3])
        else:
            self.refuse(404, "EntryNotFound")

    def describe(self, name: str, revision: str, *, files_only: bool) -> None:
        commit = COMMITS.get(revision, revision if revision in COMMITS.values() else None)
        if name == "org/busy":
            self.refuse(503, "")
        elif name == "org/locked":
            self.refuse(403, "GatedRepo")
        elif name not in REPOSITORIES:
            self.refuse(404 if "Bearer" in self.headers.get("Authorization", "") else 401, "RepoNotFound")
        elif commit is None:
            self.refuse(404, "RevisionNotFound")
        else:
            files = [
                {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for path, content in REPOSITORIES[name].items()
            ]
            about: Any = {"id": name, "sha": commit, "siblings": [{"rfilename": file["path"]} for file in files]}
            self.answer(200, json.dumps(files if files_only else about).encode())

    def file(self, name: str, commit: str, path: str) -> None:
        if name == "org/gated":
            return self.refuse(403, "GatedRepo")
        content = REPOSITORIES[name][path]
        if self.command == "GET":
            self.fetched.add(path)
        return self.answer(200, content, ETag=f'"{hashlib.sha1(content).hexdigest()}"', X_Repo_Commit=commit)

    def refuse(self, status: int, code: str) -> None:
        self.answer(status, b"", X_Error_Code=code, X_Error_Message="a message")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving(Hub) as address:
        yield address


CLIENT = """
import json, sys
from clearhead.errors import UserError
from clearhead.checkpoints.weights.hub import locate

def one(name, revision):
    try:
        return str(locate(name, revision=revision))
    except UserError as error:
        return f"refused: {error}"

print(json.dumps([one(*call) for call in json.load(sys.stdin)]))
assert "torch" not in sys.modules and "transformers" not in sys.modules
"""


class Client:
    """`locate` in a process of its own, since the hub library reads its settings when it is imported."""

    def __init__(self, endpoint: str, home: Path) -> None:
        self.endpoint, self.home = endpoint, home

    def __call__(self, *calls: tuple[str, str | None], **settings: str) -> list[str]:
        Hub.fetched.clear()
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("HF_")},
            "HF_HOME": str(self.home),
            "HF_ENDPOINT": self.endpoint,
            "HF_HUB_DISABLE_XET": "1",
            **settings,
        }
        arguments = [sys.executable, "-c", CLIENT]
        done = processes.run(
            arguments, input=json.dumps(calls), env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        found: list[str] = json.loads(done.stdout)
        assert not any("\n" in line for line in found)
        return found


@pytest.fixture
def client(server: str, tmp_path) -> Client:
    return Client(server, tmp_path / "home")


def files(folder: str) -> set[str]:
    return {str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file()}


# --- the hub ---


def test_only_what_is_read_is_fetched_and_it_stays(client: Client):
    wanted: dict[str, set[str]] = {
        "org/whole": {
            "model.safetensors",
            "1_Pooling/config.json",
            "modules.json",
            "source.spm",
            "chat_template.jinja",
        },
        "sharded": {SHARD, "model.safetensors.index.json"},
        "org/old": {"pytorch_model.bin"},
        "org/old-sharded": {"a.bin", "pytorch_model.bin.index.json"},
    }
    calls = [(name, None) for name in wanted]
    found = client(*calls)
    for folder, names in zip(found, wanted.values(), strict=True):
        assert files(folder) == names | COMMON.keys()
    assert Hub.fetched == set.union(*wanted.values(), COMMON)

    assert client(*calls) == found
    assert Hub.fetched == set()
    assert client(*calls, HF_HUB_OFFLINE="1") == found
    assert client(*calls, HF_ENDPOINT="http://127.0.0.1:9") == found


def test_the_folders_that_modules_json_names_are_fetched(client: Client):
    (found,) = client(("org/within", None))
    wanted = {name for name in REPOSITORIES["org/within"] if not name.startswith("other/") and "onnx" not in name}
    assert files(found) == wanted


def test_revisions(client: Client):
    main, tag, commit, wrong, wrong_commit = client(
        ("org/old", None), ("org/old", "v1"), ("org/old", COMMITS["v1"]), ("org/old", "v2\n"), ("org/old", "c" * 40)
    )
    assert (Path(main).name, Path(tag).name) == (COMMITS["main"], COMMITS["v1"])
    assert commit == tag
    assert wrong.startswith(
        "refused: org/old: expected a branch, tag or commit of it, got 'v2\\n'; try another revision"
    )
    assert wrong_commit.startswith("refused: org/old: expected a branch, tag or commit of it, got 'ccccc")


def test_what_the_hub_refuses(client: Client):
    none, none_short, gated, locked, busy, escape = client(
        *((name, None) for name in ("org/none", "none", "org/gated", "org/locked", "org/busy", "org/escape"))
    )
    expected = "expected a folder or a model of the hub, found neither; check the name, or try `hf auth login`"
    assert none == f"refused: org/none: {expected}"
    assert none_short == f"refused: none: {expected}"
    for name, line in (("org/gated", gated), ("org/locked", locked)):
        page = f"{client.endpoint}/{name}"
        remedy = f"ask at {page}, then try `hf auth login`"
        assert line == f"refused: {name}: expected the access that its owners grant, got none; {remedy}"
    assert busy.startswith(
        "refused: org/busy: expected the hub to send it, got 503 Service Unavailable; try again later"
    )
    assert "index.json:0: expected the name of a .safetensors file in this folder, got '../../x.saf" in escape
    assert client(("org/none", None), HF_TOKEN="hf_x") == [none]


def test_no_network(client: Client):
    (offline,) = client(("org/whole", None), HF_HUB_OFFLINE="1")
    remedy = "try once without it"
    assert (
        offline
        == "refused: org/whole: expected a local folder, or the whole model in the hub's cache, as HF_HUB_OFFLINE"
        f" is set; {remedy}"
    )
    (down,) = client(("org/whole", None), HF_ENDPOINT="http://127.0.0.1:9")
    assert down.startswith("refused: org/whole: expected a local folder, or the model on the hub or in its cache, got ")
    assert down.endswith("; check the connection")


def test_a_part_in_the_cache(client: Client):
    (folder,) = client(("org/whole", None))
    (Path(folder) / "model.safetensors").unlink()
    assert (
        "expected a local folder, or the whole model in the hub's cache"
        in client(("org/whole", None), HF_HUB_OFFLINE="1")[0]
    )
    assert client(("org/whole", None)) == [folder]
    assert (Path(folder) / "model.safetensors").read_bytes() == b"weights"


def test_a_cache_that_cannot_be_written(client: Client, tmp_path):
    (tmp_path / "home").write_text("a file")
    (line,) = client(("org/whole", None))
    assert line.startswith("refused: org/whole: expected to download it, got ")
    assert line.endswith("; try again, or another folder as HF_HOME")


def test_a_full_disk(monkeypatch):
    import huggingface_hub

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "/a/file")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", full)
    with pytest.raises(UserError) as error:
        hub.locate("org/x")
    remedy = "try another folder as HF_HOME"
    assert str(error.value) == f"org/x: expected room in the cache, got No space left on device; {remedy}"


# --- folders ---


def test_a_folder_is_itself(tmp_path, monkeypatch):
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert hub.locate(tmp_path) == hub.locate(str(tmp_path)) == tmp_path
    assert hub.locate("org/name") == Path("org/name")
    assert hub.locate("~/org") == tmp_path / "org"
    with pytest.raises(UserError, match=r"^org: expected no revision of a folder, got v1; try the name of a model"):
        hub.locate("org", revision="v1")


@pytest.mark.parametrize(
    "name",
    ["../x", "/x/y", "~nobody-here/x", "a\\b", "a/b/c", "a/", "C:x", "here/typo", "a/" + "x" * 5000 + "/c", Path("x")],
)
def test_a_path_to_nothing(name: str | Path, tmp_path, monkeypatch):
    (tmp_path / "inside" / "here").mkdir(parents=True)  # ".." has no folders of other tests.
    monkeypatch.chdir(tmp_path / "inside")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UserError, match=r": expected a folder with a model, found nothing; check the path$"):
        hub.locate(name)


@pytest.mark.parametrize(
    ("name", "remedy"), [("runs/typo-1", "runs/type-1"), ("./run", "runs"), ("~/runs/tipe-1", "runs/type-1")]
)
def test_a_misspelt_path_names_the_nearest_folder(name: str, remedy: str, tmp_path, monkeypatch):
    (tmp_path / "runs" / "type-1").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UserError, match=rf": expected a folder with a model, found nothing; try .*{remedy}$"):
        hub.locate(name)


def test_a_file(tmp_path):
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(
        UserError, match=r"model.safetensors: expected a folder with a model, got a file; try the folder"
    ):
        hub.locate(tmp_path / "model.safetensors")


@pytest.mark.parametrize("name", ["", "a b", "a--b", "x\ny", "-x", "x" * 200, "a\0b", "datasets:x"])
def test_a_name_that_no_model_can_have(name: str):
    with pytest.raises(UserError) as error:
        hub.locate(name)
    expected = "expected a folder, or a model of the hub as name or owner/name, found neither; check the name"
    assert str(error.value).endswith(f": {expected}")
    assert "\n" not in str(error.value)
