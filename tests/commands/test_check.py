"""`clearhead check` says what it compared, what differs and what it left out."""

import contextlib
import json
from pathlib import Path

import pytest

from clearhead.cli import main
from tests.small_models import model_of

pytest.importorskip("transformers")


def checked(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], str]:
    """The lines that it prints, and what it says at the end."""
    with contextlib.suppress(SystemExit):
        main(["check", str(folder)])
    said = capsys.readouterr()
    return said.out.splitlines(), said.err


@pytest.mark.parametrize("name", ["gpt2", "nano", "demo"])
def test_what_was_compared_is_said(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model_of(name).save(tmp_path / "model")
    (folder / "notes.txt").write_text("unread")
    lines, error = checked(folder, capsys)
    if name == "demo":  # an architecture for which the reference has another scale of embeddings
        assert lines or error
        return
    assert "Files that are not read: notes.txt" in lines
    assert lines[-1].startswith("Compared: states, head.logits, ids of 10 texts, greedy text of 8 tokens.")
    assert lines[-1].endswith("Not compared: labels.")


def test_another_tokenizer_is_not_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from clearhead.data.tokenizers import Tokenizer

    folder = model_of("gpt2").save(tmp_path / "model")
    before = Tokenizer.encode_batch
    monkeypatch.setattr(Tokenizer, "encode_batch", lambda *a, **k: [[0, *row] for row in before(*a, **k)])
    lines, error = checked(folder, capsys)
    assert not [line for line in lines if line.startswith("Close")]
    assert "expected the ids of 10 texts of the reference, got" in error


def test_what_the_reference_does_not_open_is_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model_of("gpt2").save(tmp_path / "model")
    (folder / "MANIFEST.json").unlink()
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["padding_side"] = "above"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    lines, _ = checked(folder, capsys)
    assert "Not compared: ids of texts, labels." in lines[-1]
