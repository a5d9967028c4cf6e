"""`clearhead patch`."""

import json
from pathlib import Path

import pytest

from clearhead.cli import main
from tests.small_models import model_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_of("gpt2", n_layers=2).save(tmp_path_factory.mktemp("models") / "gpt")


def patched(folder: Path, *flags: str, **changed: str) -> list[str]:
    texts = {"clean": "one two three", "corrupt": "one four three", "answer": "five", "minus": "two"} | changed
    return ["patch", str(folder), *(part for name, value in texts.items() for part in (f"--{name}", value)), *flags]


def test_a_row_for_each_block(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(patched(folder, answer=" five", minus="three"))
    printed, told = capsys.readouterr()
    title, names, *rows = printed.splitlines()
    assert title == "decoder resid_pre"
    assert names.split() == ["block", "one", "four", "three"]
    assert [row.split()[0] for row in rows] == ["1", "0"]
    assert rows[1].split()[1:] == ["0.00", "1.00", "0.00"], "the only token that differs restores all"
    assert "decoder: 3 positions, aligned one by one" in told


def test_other_lengths_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(patched(folder, "--json", of="all", corrupt="one four one three", answer="five", minus="three"))
    found = json.loads(capsys.readouterr().out)
    assert found["alignment"] == {"decoder": [[0, 0], [1, 2], [2, 3]]}
    assert found["restored"]["decoder.blocks.0.resid_pre"][1] is None
    assert len(found["restored"]["decoder.blocks.1.attn.z"]) == 2
    assert set(found["tokens"]) == {"clean", "corrupt"}


def test_mistakes_are_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for changed, expected in (
        ({"answer": "five six"}, "error: --answer: expected one token, got five six, which is"),
        ({"corrupt": "one two three"}, "error: patching: expected texts that answer differently"),
        ({}, "at most 0.1 apart, and shares of that mean little; choose another text, position or answers"),
        ({"position": "7"}, "error: position 7: expected a position of the clean text, whose length is 3"),
    ):
        with pytest.raises(SystemExit):
            main(patched(folder, **changed))
        assert expected in capsys.readouterr().err
