"""The explorer's page in the package: when it is built, with which node, and what a wheel and an sdist carry."""

import gzip
import json
import os
import re
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hatch_build
from clearhead.errors import UserError
from clearhead.explorer import static_files
from clearhead.explorer.static_files import STATIC, static_file
from tests import processes

ROOT = Path(hatch_build.__file__).resolve().parent
PACKED = ("clearhead", "recipes", "docs", "tests", "ui", "hatch_build.py", "pyproject.toml", "README.md", "LICENSE")
LIMITS = {
    "explorer.js": 200_000, "file.js": 230_000, "boot.js": 1000, "webgpu.js": 7_000, "tokenizers.js": 9_000,
    "exercises.js": 230_000, "training.js": 50_000,
}  # fmt: skip
"""Bytes of JavaScript, gzipped. A served page loads explorer.js and boot.js; an exported file holds file.js, and
webgpu.js with a large model, tokenizers.js with a tokenizer. A page of exercises holds exercises.js in its
place, one in which a model learns training.js alone."""
OTHERS = ("explorer.css", "exercises.css", "training.css", "texts.json", "LICENSES.txt")
BUILT = {f"clearhead/explorer/static/{name}" for name in (*LIMITS, *OTHERS)}
# Named, never fetched: the names of XML vocabularies, and pages that explain an error.
NAMED_ONLY = ("http://www.w3.org/", "https://svelte.dev/e/")


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A checkout whose page is built of one source."""
    for name in ("src", "test", "public"):
        (tmp_path / "ui" / name).mkdir(parents=True)
        (tmp_path / "ui" / name / "a.ts").write_text("1")
    (tmp_path / "ui" / "package.json").write_text("{}")
    (tmp_path / hatch_build.STATIC).mkdir(parents=True)
    (tmp_path / hatch_build.STATIC / ".built").write_text(hatch_build.fingerprint(tmp_path / "ui"))
    return tmp_path


@pytest.mark.parametrize(
    ("change", "must_build"),
    [
        (lambda root: None, False),
        (lambda root: (root / "ui/test/a.ts").write_text("2"), False),
        (lambda root: (root / "ui/src/a.ts").write_text("2"), True),
        (lambda root: (root / "ui/public/a.ts").write_text("2"), True),
        (lambda root: (root / "ui/src/a.ts").rename(root / "ui/src/b.ts"), True),
        (lambda root: (root / "ui/package-lock.json").write_text("{}"), True),
        (lambda root: (root / hatch_build.STATIC / ".built").unlink(), True),
        (lambda root: shutil.rmtree(root / hatch_build.STATIC), True),
        (lambda root: shutil.rmtree(root / "ui"), False),
    ],
)
def test_built_when_its_sources_changed(checkout: Path, change: Callable[[Path], object], must_build: bool):
    change(checkout)
    assert hatch_build.must_build(checkout) is must_build


@pytest.mark.parametrize(
    ("version", "recent"),
    [
        *(("v20.19.0", True), ("v22.12.0", True), ("v24.0.0", True), ("v100.1.0", True), ("nonsense", False)),
        *(("v18.20.4", False), ("v20.18.1", False), ("v21.7.3", False), ("v22.11.0", False), ("", False)),
    ],
)
def test_recent_node(version: str, recent: bool):
    assert hatch_build.is_recent(version) is recent


def _executables(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    """The only programs on the path."""
    folder.mkdir()
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.skipif(os.name == "nt", reason="the programs are shell scripts")
@pytest.mark.parametrize(
    ("scripts", "asked"),
    [
        ({}, True),
        ({"node": "echo v18.20.4", "npm": ""}, True),
        ({"node": "echo v22.12.0"}, True),  # Debian's node comes without npm
        ({"node": "echo v22.12.0", "npm": ""}, False),
    ],
)
def test_node_is_asked_for_where_there_is_none(checkout: Path, monkeypatch, scripts: dict[str, str], asked: bool):
    _executables(checkout / "bin", monkeypatch, **scripts)
    assert hatch_build.requirements(checkout) == []  # it is built already
    (checkout / "ui/src/a.ts").write_text("2")
    assert hatch_build.requirements(checkout) == ([hatch_build.NODE_REQUIREMENT] if asked else [])


def test_installed_is_what_the_lock_names(checkout: Path):
    ui = checkout / "ui"
    lock = {"": {}, "node_modules/a": {"version": "1.0.0"}, "node_modules/b": {"version": "2.0.0", "optional": True}}
    (ui / "package-lock.json").write_text(json.dumps({"packages": lock}))
    assert not hatch_build.is_installed(ui)
    (ui / "node_modules").mkdir()
    for version, installed in (("1.0.0", True), ("1.0.1", False)):
        listed = {"packages": {"node_modules/a": {"version": version}}}
        (ui / "node_modules" / ".package-lock.json").write_text(json.dumps(listed))
        assert hatch_build.is_installed(ui) is installed


def test_no_node_is_told_in_one_line(checkout: Path, monkeypatch):
    monkeypatch.setattr(hatch_build, "find_node", lambda: None)
    with pytest.raises(SystemExit, match=r"\A[^\n]*found none; install node with npm, or `pip install [a-z-]+`\Z"):
        hatch_build.build(checkout)


def test_a_failed_step_is_told_in_one_line(checkout: Path):
    with pytest.raises(SystemExit, match=r"\A[^\n]*`npm ci` failed with exit code 7; try again\Z"):
        hatch_build.run(checkout / "ui", "npm ci", [sys.executable, "-c", "raise SystemExit(7)"], "try again")


def test_a_missing_page_is_told_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(static_files, "STATIC", tmp_path / "static")
    with pytest.raises(UserError, match=r"explorer\.js: expected .*`pip install -e \.`"):
        static_file("explorer.js")


# --- the page as it is built here ---------------------------------------------------------------------------------


def test_built_of_these_sources():
    assert not hatch_build.must_build(ROOT), "ui/ has changed since the page was built: pip install --no-deps -e ."


def test_a_module_for_pages_one_for_files_and_one_style_sheet():
    assert {file.name for file in STATIC.iterdir()} - {".built"} == {Path(name).name for name in BUILT}
    exported = re.findall(r"export\s*\{([^}]*)\}", static_file("explorer.js").decode())
    assert {"startPage", "default"} == {name.split()[-1] for name in exported[-1].split(",")}


def test_small():
    sizes = {file.name: len(gzip.compress(file.read_bytes())) for file in STATIC.rglob("*.js")}
    assert sizes.keys() == LIMITS.keys()
    assert {name: size for name, size in sizes.items() if not 0 < size <= LIMITS[name]} == {}
    assert sizes["file.js"] + sizes["tokenizers.js"] <= LIMITS["file.js"]


@pytest.mark.parametrize("name", [*LIMITS, "explorer.css", "exercises.css", "training.css"])
def test_nothing_is_fetched_from_elsewhere(name: str):
    text = static_file(name).decode()
    addresses = re.findall(r"(?:https?|wss?)://[^\s\"'`)\\]*|[\"'`(]//[\w.-]+", text)
    assert [address for address in addresses if not address.startswith(NAMED_ONLY)] == []


def test_licences_of_what_is_bundled():
    text = static_file("LICENSES.txt").decode()
    assert re.search(r"^## svelte - [\d.]+ \(MIT\)$", text, re.MULTILINE)
    assert "Permission is hereby granted" in text


def test_no_registry_is_named_in_the_lock():
    lock = json.loads((ROOT / "ui" / "package-lock.json").read_text(encoding="utf-8"))
    assert [name for name, package in lock["packages"].items() if "resolved" in package] == []


# --- wheel and sdist ----------------------------------------------------------------------------------------------


def _copied(folder: Path) -> Path:
    """This checkout without what is built or installed in it."""
    left_out = shutil.ignore_patterns("node_modules", "static", "__pycache__")
    for name in (*PACKED, ".gitignore"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=left_out)
        else:
            folder.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def _names(archive: Path) -> set[str]:
    """The files of a wheel, or of an sdist without its outer folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return set(wheel.namelist())
    with tarfile.open(archive) as sdist:
        return {name.split("/", 1)[1] for name in sdist.getnames()}


@pytest.fixture(scope="module")
def archives(tmp_path_factory) -> Iterator[Path]:
    """A folder with the wheel and the sdist of this checkout, and in `again` those of a second copy of it.

    Its page is built already: installing it did that.
    """
    folder = tmp_path_factory.mktemp("archives")
    if hatch_build.must_build(ROOT):
        pytest.fail("ui/ has changed since the page was built: pip install --no-deps -e .")
    for archives, name in ((folder, "checkout"), (folder / "again", "another")):
        checkout = _copied(folder / name)
        shutil.copytree(STATIC, checkout / hatch_build.STATIC)
        command = [sys.executable, "-m", "hatchling", "build", "-d", str(archives)]
        done = processes.run(command, cwd=checkout, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("pattern", ["*.whl", "*.tar.gz"])
def test_archives_carry_the_page_built(archives: Path, pattern: str):
    (archive,) = archives.glob(pattern)
    names = _names(archive)
    assert names >= BUILT
    assert [name for name in names if "node_modules" in name] == []


@pytest.mark.parametrize("pattern", ["*.whl", "*.tar.gz"])
def test_two_builds_are_equal_byte_for_byte(archives: Path, pattern: str):
    (one,), (other,) = archives.glob(pattern), (archives / "again").glob(pattern)
    assert one.read_bytes() == other.read_bytes()


def test_a_wheel_has_no_sources_and_an_sdist_needs_no_node(archives: Path, tmp_path):
    (wheel,), (sdist,) = archives.glob("*.whl"), archives.glob("*.tar.gz")
    assert [name for name in _names(wheel) if name.startswith(("ui/", "hatch_build", "tests/"))] == []
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    assert (unpacked / "ui" / "src" / "entry" / "index.ts").is_file()
    assert not hatch_build.must_build(unpacked)


@pytest.mark.slow  # fetches what a newcomer's `pip install .` fetches
@pytest.mark.skipif(os.name == "nt", reason="the path of a machine without node is made of links")
@pytest.mark.parametrize("with_node", [True, False])
def test_wheel_from_a_fresh_checkout(tmp_path, with_node: bool):
    if with_node and hatch_build.node_on_path() is None:
        pytest.skip("no recent node with npm on the path")
    checkout = _copied(tmp_path / "checkout")
    environment = dict(os.environ)
    if not with_node:
        (tmp_path / "bin").mkdir()
        for program in filter(None, map(shutil.which, ("sh", "env", "uname"))):
            (tmp_path / "bin" / Path(program).name).symlink_to(program)
        environment["PATH"] = str(tmp_path / "bin")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(tmp_path), str(checkout)]
    done = processes.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert _names(wheel) >= BUILT
