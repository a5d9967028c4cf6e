"""Each tutorial runs as its notebook does, as it is written, and prints what the page shows."""

import io
import json
import os
import re
import runpy
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from clearhead.cli import main
from clearhead_lab.course.notebook import notebook
from tests import processes
from tests.conftest import ROOT
from tests.docs.blocks import TUTORIALS, name
from tests.docs.outputs import difference

HUB = {
    "sentence-transformers/all-MiniLM-L6-v2": ("checkpoints/all-MiniLM-L6-v2-fp16",),
    "Xenova/llama2.c-stories15M": ("checkpoints/stories15M", "tokenizers/llama2"),
}
"""Models of the hub, and the folders of the shared data whose files they have."""


class Reader:
    """A reader's folder, and the cells of a notebook that run in it."""

    def __init__(self, folder: Path, site: Path, stack: ExitStack) -> None:
        self.folder, self.site, self.stack = folder, site, stack
        self.port = ""
        """Where a server of this page listens, in place of 8000."""

    def cell(self, source: str) -> str:
        """Runs a cell, and returns what it prints."""
        if file := re.match(r"%%writefile (\S+)\n", source):
            text = source[file.end() :].replace(":8000", f":{self.port}") if self.port else source[file.end() :]
            (self.folder / file[1]).write_text(text, encoding="utf-8")
            return ""
        return "".join(self.line(line) for line in source.splitlines())

    def line(self, line: str) -> str:
        if background := re.fullmatch(r"get_ipython\(\)\.system_raw\('(.*) &'\)", line):
            self.serve(shlex.split(background[1]))
            return ""
        words = shlex.split(line.removeprefix("!"))
        if words[:2] == ["pip", "install"]:
            return self.install(words[2])
        if words[0] == "torchrun" or self.site.exists():
            return self.process(words)
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(out):
            if words[0] == "python":
                runpy.run_path(words[1])
            else:
                assert words[0] == "clearhead", line
                try:
                    main(words[1:])
                except SystemExit as end:
                    if end.code:
                        raise AssertionError(f"{line}\n{out.getvalue()}") from None
        return out.getvalue()

    def install(self, what: str) -> str:
        """Installs the package of this folder; clearhead is there."""
        if what == ".":
            offline = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check")
            self.process(["python", "-m", "pip", "install", *offline, "--target", str(self.site), what])
        return ""

    def process(self, words: list[str]) -> str:
        modules = {"clearhead": ["-m", "clearhead"], "torchrun": ["-m", "torch.distributed.run"], "python": []}
        line = [sys.executable, *modules[words[0]], *words[1:]]
        done = processes.run(line, stdout=-1, stderr=-2, text=True, cwd=self.folder, env=self.environment)
        assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}"
        return done.stdout

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join(map(str, (self.site, ROOT, ROOT / "lab")))
        return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}

    def serve(self, words: list[str]) -> None:
        """Starts a server that ends with the page."""
        line = [sys.executable, "-m", *words, "--port", "0"]
        streams: dict[str, Any] = {"stdout": -1, "stderr": -2, "text": True}
        process = self.stack.enter_context(
            processes.started(line, timeout=300, cwd=self.folder, env=self.environment, **streams)
        )
        self.stack.callback(process.send_signal, signal.SIGINT)
        found = next((found for said in process.stdout if (found := re.search(r"http://[\w.]+:(\d+)", said))), None)
        assert found is not None, shlex.join(words)
        self.port = found[1]


def cells(path: Path) -> Iterator[tuple[str, str]]:
    """The code of each cell of a page's notebook, and the output that it shows."""
    for cell in json.loads(notebook(path.stem, path.read_text(encoding="utf-8")))["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(cell["source"]), "".join(text for one in cell["outputs"] for text in one["text"])


def link(model: str, shared: Path, folder: Path) -> None:
    """Puts the files of a model of the hub where its name leads."""
    (folder / model).mkdir(parents=True)
    for file in (file for one in HUB[model] for file in (shared / one).iterdir()):
        (folder / model / file.name).symlink_to(file)


@pytest.fixture
def reader(request, tmp_path, monkeypatch) -> Iterator[Reader]:
    """A reader in an empty folder, with the page's models of the hub in it. Skips if they are not at hand."""
    for model in HUB:
        if model in request.node.callspec.params["path"].read_text(encoding="utf-8"):
            link(model, request.getfixturevalue("shared_data"), tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    with ExitStack() as stack:
        yield Reader(tmp_path, tmp_path / "site", stack)


@pytest.mark.parametrize("path", TUTORIALS, ids=name)
def test_it_prints_what_it_shows(path: Path, reader: Reader):
    wrong = []
    for source, shown in cells(path):
        printed = reader.cell(source)
        print(source, printed, sep="\n")
        if shown and (line := difference(shown, printed)):
            wrong.append(f"{name(path)}: {source}\nexpected {line}\nin\n{printed}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("shown", "printed", "said"),
    [
        ("a 1.00 b\n", "a  1.04 b\n", None),
        ("a 1.00 b\n", "a 1.20 b\n", "a 1.00 b"),
        ("12 rows\n", "13 rows\n", "12 rows"),
        ("…\nlast 3\n", "first\nlast 3\n", None),
        ("…\nlast 3\n", "last 3\nmore\n", "nothing more, but it prints 'more'"),
        ("took … s, 5.0\n", "took 00:12 s, 5.1\n", None),
        ("one\n", "two\none\n", "one"),
    ],
)
def test_a_difference_is_found(shown: str, printed: str, said: str | None):
    assert difference(shown, printed) == said
