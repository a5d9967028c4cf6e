import json
from pathlib import Path

import pytest

from clearhead.cli import main
from clearhead.training import profile
from tests.training.tiny import write_recipe


@pytest.fixture(autouse=True)
def _small_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "CEILING_SIZE", {"cpu": 64})


def test_a_recipe_with_data_is_profiled_on_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["profile", str(write_recipe(tmp_path)), "--steps", "2", "--json", "--training.clip", "0.5"])
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found["tokens"] <= 60
    assert found["flops"] > 0
    assert found["precision"] == "fp32"
    assert "random" not in said.err


def test_any_other_on_random_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write_recipe(tmp_path)
    (tmp_path / "a.en").unlink()
    main(["profile", str(recipe), "--steps", "1", "--length", "6", "--batch", "48"])
    out = capsys.readouterr().out
    assert "(48 a step, fp32, cpu)" in out
    assert "Largest beside the backward pass: " in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nano", "--training.clip", "1"], "--training.clip: expected a recipe to change, got the model nano"),
        (["nano", "--steps", "0"], "--steps: expected 1 or more, got 0"),
        (["nano", "--length", "64", "--batch", "8"], "--batch: expected at least a sequence of 64 tokens, got 8"),
        (["vit-tiny"], "vit-tiny.head.kind: expected language, got classification"),
    ],
)
def test_mistakes_are_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["profile", *words])
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
