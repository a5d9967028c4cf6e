"""Every command and every block of Python in a guide runs, on small files and models, with warnings as errors."""

import os
from pathlib import Path

import pytest

from clearhead.data.prompts import BUNDLED, prompts_in
from clearhead.recipe.data import Spans
from clearhead.recipe.tokenizers import Words
from clearhead.tasks.denoising import extended_for
from clearhead.text.tokenizers import Tokenizer
from tests.api.test_spelling import labelled
from tests.docs.blocks import GUIDES, name
from tests.docs.running import TABLES, Folder, items, skipped
from tests.small_models import TEXTS, model_of, towers
from tests.test_pipelines_page import MAKERS as PIPELINES

SETS = [
    *("In Rome Paris London Tom Ben Anna Lucy Mary met".split()),
    *(" ".join([*prompt.texts, f"{prompt.answer} {prompt.minus}"]) for each in BUNDLED for prompt in prompts_in(each)),
]
"""The words of the sets of prompts."""
MAKERS = {**PIPELINES, "spans": lambda: model_of("demo", extended_for(Spans(), Tokenizer.train(TEXTS, Words())))}
MAKERS["story"] = lambda: model_of("nano", Tokenizer.train([*TEXTS, *SETS], Words()))
ELSEWHERE = {"docs/moving-from-pipelines.md": "tests/test_pipelines_page.py"}
"""Documents that another test runs line by line."""
PATHS = [path for path in GUIDES if name(path) not in ELSEWHERE and [*items(path.read_text(encoding="utf-8"))]]


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for kind in {kind for kind in TABLES["checkpoints"].values() if isinstance(kind, str)}:
        if kind == "moments":
            labelled(folder / kind)
        else:
            (towers if kind == "towers" else MAKERS[kind])().save(folder / kind)
    return folder


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("runs")


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
