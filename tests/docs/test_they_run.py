"""Every command and every block of Python in a guide runs, on small files and models, with warnings as errors."""

import os
from pathlib import Path

import pytest

from tests.docs.blocks import GUIDES, name
from tests.docs.running import TABLES, Folder, items, skipped

ELSEWHERE = {"docs/moving-from-pipelines.md": "tests/test_pipelines_page.py"}
"""Documents that another test runs line by line."""
PATHS = [path for path in GUIDES if name(path) not in ELSEWHERE and [*items(path.read_text(encoding="utf-8"))]]


@pytest.mark.parametrize("path", PATHS, ids=name)
def test_it_runs(path: Path, tmp_path, models: Path, runs: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr("webbrowser.open", lambda *_, **__: True)
    folder = Folder(tmp_path, models, runs, path.name)
    exec(TABLES["python"].get(path.name, ""), folder.space)
    wrong: list[str] = []
    for line, item in items(path.read_text(encoding="utf-8")):
        if skipped(item if isinstance(item, str) else item.text):
            continue
        try:
            if isinstance(item, str):
                folder.command(item)
            elif item.language == "toml":
                folder.recipe(item, path.name)
            else:
                folder.python(item, path.name)
        except (Exception, SystemExit) as error:
            what = item if isinstance(item, str) else item.text
            wrong.append(f"{name(path)}:{line}: {what.strip()}\n    {type(error).__name__}: {error}")
            print(wrong[-1], flush=True)
    assert wrong == [], "\n".join(wrong)


def test_nothing_is_skipped_in_vain():
    everything = [
        item if isinstance(item, str) else item.text for path in GUIDES for _, item in items(path.read_text("utf-8"))
    ]
    assert [
        beginning for beginning in TABLES["skipped"] if not any(one.startswith(beginning) for one in everything)
    ] == []
