"""One page of all speeds: what is measured once is kept, and every row says whether it was quiet."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import page
from benchmarks.racing.lines import Line
from clearhead.errors import UserError

LINE = Line(what="train x", peer="y", ratio=1.25, low=1.1, high=1.3, share=0.5, ceiling="matrix products")


@pytest.fixture
def commands(monkeypatch):
    """The commands that would have run; each prints a table and its lines."""
    ran: list[list[str]] = []

    def run(command, *, env, **_):
        ran.append([*command[2:], env.get("ATEN_CPU_CAPABILITY", "")])
        printed = "a table\n" + json.dumps({"lines": [LINE.model_dump()]})
        return SimpleNamespace(stdout="" if "serving" in str(command) else printed, returncode=1)

    monkeypatch.setattr(page, "subprocess", SimpleNamespace(run=run, PIPE=subprocess.PIPE))
    return ran


def test_page_has_a_row_of_each_line_and_goes_on(commands, tmp_path, monkeypatch):
    monkeypatch.setattr(page.Load, "shares", lambda _: (0.2, 0.0))
    for only in (("gpt-small",), ("tokenizers",)):
        written = page.write_all(tmp_path, "avx2", only, data=Path("/corpora"), quick=True).read_text()
    assert commands == [
        ["benchmarks", "run", "gpt-small", "--json", "--quick", "avx2"],
        ["benchmarks", "run", "tokenizers", "--data", "/corpora", "--json", "--quick", "avx2"],
    ]
    row = "| train x | **1.25** | 1.10 to 1.30 | y | 0.50 of matrix products | no: others 20%, stolen 0% |"
    assert written.count(row) == 2
    assert written.count("A promised figure is missed.") == 2
    assert "capped to avx2" in written


def test_what_prints_nothing_is_not_kept(commands, tmp_path):
    with pytest.raises(UserError, match="serving: expected figures, got none"):
        page.write_all(tmp_path, "", ("serving",), data=tmp_path, quick=False)
    assert not list(tmp_path.rglob("*.json"))
    with pytest.raises(UserError, match="avx3: expected one of avx2, "):
        page.write_all(tmp_path, "avx3", (), data=tmp_path, quick=False)
