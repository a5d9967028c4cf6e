"""Every command and every block of Python in a guide runs, on small files and models, with warnings as errors."""

import os
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clearhead.cli.commands import COMMANDS
from clearhead_lab.course.commands import complaint
from tests.conftest import ROOT
from tests.docs.blocks import GUIDES, blocks, name
from tests.docs.running import TABLES, Folder, items, skipped

ELSEWHERE = {"docs/moving-from-pipelines.md": "tests/test_pipelines_page.py"}
"""Documents that another test runs line by line."""
PATHS = [path for path in GUIDES if name(path) not in ELSEWHERE and [*items(path.read_text(encoding="utf-8"))]]


EXAMPLES: dict[str, list[str]] = tomllib.loads((ROOT / "clearhead/cli/examples.toml").read_text(encoding="utf-8"))
IN_GUIDES = {item for path in PATHS for _, item in items(path.read_text(encoding="utf-8")) if isinstance(item, str)}


@pytest.fixture
def folder_of(tmp_path, models: Path, runs: Path, monkeypatch) -> Callable[[str], Folder]:
    """The working folder of who reads this document."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr("webbrowser.open", lambda *_, **__: True)
    return lambda document: Folder(tmp_path, models, runs, document)


@pytest.mark.parametrize("path", PATHS, ids=name)
def test_it_runs(path: Path, folder_of: Callable[[str], Folder]):
    folder = folder_of(path.name)
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


def test_the_numbers_of_word_vectors_are_those_of_its_comments(shared_data: Path):
    _, *others = blocks((ROOT / "docs/word-vectors.md").read_text(encoding="utf-8"))
    text = "\n".join(block.text for block in others).replace(
        "path/to/all-MiniLM-L6-v2", str(shared_data / "checkpoints/all-MiniLM-L6-v2-fp16")
    )
    space: dict[str, Any] = {}
    exec(text, space)
    shown = re.findall(r"^(\S.*)  # ([\d., ]+)$", text, re.MULTILINE)
    assert len(shown) == 9
    for line, numbers in shown:
        assert [round(one.item(), 2) for one in eval(f"[{line}]", space)] == [
            float(number) for number in numbers.split(", ")
        ]


def test_every_help_ends_with_three_examples():
    commands = {name for group in COMMANDS.values() for name in group}
    assert set(EXAMPLES) == commands
    for command, lines in EXAMPLES.items():
        assert len({*lines}) == 3
        assert [said for line in lines if (said := complaint(line))] == []
        assert any(line.startswith(f"clearhead {command}") for line in lines)


@pytest.mark.parametrize("command", [name for name, lines in EXAMPLES.items() if not {*lines} <= IN_GUIDES])
def test_the_examples_of_help_run(command: str, folder_of: Callable[[str], Folder]):
    """Those that no guide has, and what stands before them, which they may need."""
    folder, lines = folder_of("examples.md"), EXAMPLES[command]
    for i, line in enumerate(lines):
        if not skipped(line) and not {*lines[i:]} <= IN_GUIDES:
            folder.command(line)


def test_nothing_is_skipped_in_vain():
    everything = [
        item if isinstance(item, str) else item.text for path in GUIDES for _, item in items(path.read_text("utf-8"))
    ]
    everything += [line for lines in EXAMPLES.values() for line in lines]
    assert [
        beginning for beginning in TABLES["skipped"] if not any(one.startswith(beginning) for one in everything)
    ] == []
