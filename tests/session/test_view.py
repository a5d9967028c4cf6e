"""The view in a notebook's cell, by a display of IPython's kind, and what a terminal is told."""

import re
from types import SimpleNamespace
from typing import Any

import IPython.display
import pytest

import clearhead

pytestmark = pytest.mark.usefixtures("empty_folder")
ROWS = [(f"{'good' if i % 2 else '<b>bad'} {i}", "yes" if i % 2 else "no") for i in range(80)]
QUICK: dict[str, Any] = {"steps": 3, "device": "cpu", "precision": "fp32"}


def test_a_cell_shows_the_run_while_it_trains(monkeypatch, capsys):
    shown: list[str] = []
    handle = SimpleNamespace(update=lambda html: shown.append(html.data))
    monkeypatch.setattr("clearhead.session.view.in_notebook", lambda: True)
    monkeypatch.setattr("clearhead.session.view.PAUSE", 0.0)
    monkeypatch.setattr(IPython.display, "display", lambda _, display_id: handle)
    run = clearhead.train(ROWS, **QUICK)
    assert any("step 2, 67%" in one for one in shown)
    assert "finished" in shown[-1]
    for part in ("<polyline", "<circle", "accuracy", "best", "floor: accuracy: majority", "vocabulary: "):
        assert part in shown[-1], part
    assert "<b>bad" not in shown[-1].replace("<b>runs", ""), "texts are escaped"
    assert not re.search(r"nan|None|undefined", shown[-1])
    assert run._repr_html_() == shown[-1][: len(run._repr_html_())]
    assert "step 1" not in capsys.readouterr().err, "no bar beside it"


def test_a_terminal_is_told_as_by_the_command(capsys):
    run = clearhead.train(ROWS, **QUICK)
    said = capsys.readouterr().err
    for part in (
        "vocabulary: ",
        "floor on test data, accuracy: majority",
        "step 3  accuracy",
        str(run.folder),
        *run.remarks,
    ):
        assert part in said, part
    assert any(re.search(r": run\.resume\(steps=\d+\)$", line) for line in run.remarks)
    clearhead.train(ROWS, view=False, **QUICK)
    assert capsys.readouterr() == ("", "")
